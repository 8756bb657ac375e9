package eyes

import "syscall"

// olderCalls are those that younger architectures do without.
var olderCalls = map[int]string{syscall.SYS_POLL: "poll", syscall.SYS_SELECT: "select", syscall.SYS_EPOLL_WAIT: "epoll_wait"}
