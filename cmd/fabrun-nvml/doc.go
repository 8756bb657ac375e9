// Command fabrun-nvml prints what other libraries say of this machine as
// snapshot sections: NVML, and with the word "opinions" ghw and rdmamap. It is
// the only cgo of fabrun and runs apart from it: a driver library that kills
// its process then kills this helper alone, and what takes long to load is
// loaded only when it is asked.
package main
