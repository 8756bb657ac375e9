package launcher

const sysSetMempolicy = 238 // arch/x86/entry/syscalls/syscall_64.tbl
