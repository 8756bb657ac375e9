// Command fabrun-nvml prints NVML's facts about this machine as snapshot
// sections. It is the only cgo of fabrun and runs apart from it: a driver
// library that kills its process then kills this helper alone.
package main
