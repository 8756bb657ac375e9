//go:build !amd64

package launcher

const sysSetMempolicy = 237 // include/uapi/asm-generic/unistd.h
