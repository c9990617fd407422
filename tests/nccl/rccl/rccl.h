/* RCCL's calls are NCCL's. */
#include "../nccl.h"
