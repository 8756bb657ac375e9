// Package pasted reads the text of the tools people already use and paste:
// nvidia-smi topo -m, show_gids, mlnx_qos, dcb, ibdev2netdev, ibstat,
// ibv_devinfo, perftest, nccl-tests, OSU benchmarks, captures. It returns
// fragments of a topology.Host, or measurements, and judges neither
// (topology/health and launcher/measure do). What cannot be read is said
// line by line; nothing is guessed from a mangled paste.
package pasted
