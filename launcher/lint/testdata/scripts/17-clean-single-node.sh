#!/bin/bash
export MASTER_ADDR=localhost MASTER_PORT=29500
torchrun --standalone --nproc-per-node=8 train.py --tag "a=b,c"
