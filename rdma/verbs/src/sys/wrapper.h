/* Headers read by `cargo xtask bindings`. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
