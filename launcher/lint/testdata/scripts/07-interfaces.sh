export NCCL_SOCKET_IFNAME=docker0
export GLOO_SOCKET_IFNAME==eth0
UCX_TLS=rc UCX_NET_DEVICES=mlx5_2 mpirun -n 4 ./osu_bw
# want 1 bootstrap.virtual
# want 2 bootstrap.gloo-form
# want 3 value.ucx-tls-alone
# want 3 hca.ucx-port
