#!/bin/sh
# A stub of the installer: notes the options it got, and lays down the places that the real one fills
set -eu
amazon=/opt/amazon
mpi=openmpi plugin=yes
mkdir -p "$amazon"
printf '%s\n' "$@" > "$amazon/efa-installer-options"
for option; do
    case $option in
    --mpi=*openmpi5*) mpi=openmpi5 ;;
    --skip-plugin) plugin=no ;;
    esac
done

library() {
    mkdir -p "$(dirname "$1")"
    cp /lib/x86_64-linux-gnu/libutil.so.1 "$1"
}
program() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\necho "%s"\n' "$2" > "$1"
    chmod 755 "$1"
}

library "$amazon/efa/lib/libfabric.so.1"
ln -sf libfabric.so.1 "$amazon/efa/lib/libfabric.so"
mkdir -p "$amazon/efa/include/rdma" && : > "$amazon/efa/include/rdma/fabric.h"
program "$amazon/efa/bin/fi_info" 'fi_info: @libfabric@
libfabric: @libfabric@'
library "$amazon/$mpi/lib/libmpi.so.40"
for name in mpirun mpiexec orterun orted prted prte mpicc mpicxx ompi_info; do
    program "$amazon/$mpi/bin/$name" "$name (Open MPI) @open-mpi@
Usage: $name, a stub"
done
mkdir -p "$amazon/$mpi/etc" && : > "$amazon/$mpi/etc/openmpi-mca-params.conf"
release='@aws-ofi-nccl@'
case $release in
[0-9]*) if [ "$plugin" = yes ]; then
        library "$amazon/ofi-nccl/lib/libnccl-net-ofi.so"
        printf 'NET/OFI Initializing aws-ofi-nccl %s\n' "$release" >> "$amazon/ofi-nccl/lib/libnccl-net-ofi.so"
        ln -sf libnccl-net-ofi.so "$amazon/ofi-nccl/lib/libnccl-net.so"
        ln -sf libnccl-net-ofi.so "$amazon/ofi-nccl/lib/libnccl-ofi-tuner.so"
    fi ;;
esac
printf '# EFA installer version: @release@\n# a stub\n' > "$amazon/efa_installed_packages"
for folder in "$amazon"/*/lib; do echo "$folder"; done > /etc/ld.so.conf.d/000_efa.conf
ldconfig
