// A simulated NCCL whose ranks are processes and whose device memory is host memory: MPI performs its gathers
// immediately. The program thus runs as ranks with one GPU each, over a simulated vendor library.
//
// Environment: SLM_FAKE_DEVICES is the number of visible devices, SLM_FAKE_BUS the number of the first one, and
// SLM_FAKE_NOTES the folder in which each rank records the communicators that it opens and closes.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "gpu/fake/fake.hpp"
#include "nccl/nccl.h"  // also if slm_cli uses NCCL's own header: calls and numbers are equal, except the configuration
#include "slm/ranks/mpi.hpp"

namespace {

using slm::ranks::MpiTurn;  // protects MPI calls of this process's threads, including slm's own

constexpr int first_tag = 1000;  // slm's own messages have other tags

/// Before main().
[[maybe_unused]] const bool has_devices = [] {
  if (const char* const count = std::getenv("SLM_FAKE_DEVICES")) fake::library().devices = std::atoi(count);
  if (const char* const bus = std::getenv("SLM_FAKE_BUS")) fake::library().bus = std::atoi(bus);
  return true;
}();

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

template <class... Words>
void note(const Words&... words) {
  const char* const folder = std::getenv("SLM_FAKE_NOTES");
  if (folder == nullptr) return;
  std::ofstream notes(std::string(folder) + "/" + std::to_string(world_rank()), std::ios::app);
  ((notes << words << ' '), ...);
  notes << '\n';
}

struct Id {  // contents of an ncclUniqueId
  int root;  // in the world
  int tag;
};

MPI_Datatype type_of(ncclDataType_t type) { return type == ncclUint64 ? MPI_UINT64_T : MPI_BYTE; }

ncclResult_t result_of(int status) { return status == MPI_SUCCESS ? ncclSuccess : ncclSystemError; }

}  // namespace

struct ncclComm {
  MPI_Comm ranks = MPI_COMM_NULL;
  int device = 0;
  int calls = 0;

  /// An NCCL call, with the device of the communicator's creation current.
  bool is_here() {
    ++calls;
    return fake::library().current_device == device;
  }
};

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int tag = first_tag;
  const MpiTurn turn;
  new (id->internal) Id{world_rank(), tag++};
  return ncclSuccess;
}

/// Its first rank collects the positions of the others and broadcasts them.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  const Id found = *reinterpret_cast<const Id*>(id.internal);
  const MpiTurn turn;
  std::vector<int> places(static_cast<std::size_t>(ranks));  // in the world
  std::array<int, 2> own{rank, world_rank()};
  if (rank == 0) {
    places[0] = own[1];
    for (int other = 1; other < ranks; ++other) {
      MPI_Recv(own.data(), 2, MPI_INT, MPI_ANY_SOURCE, found.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      places[static_cast<std::size_t>(own[0])] = own[1];
    }
    for (int other = 1; other < ranks; ++other)
      MPI_Send(places.data(), ranks, MPI_INT, places[static_cast<std::size_t>(other)], found.tag, MPI_COMM_WORLD);
  } else {
    MPI_Send(own.data(), 2, MPI_INT, found.root, found.tag, MPI_COMM_WORLD);
    MPI_Recv(places.data(), ranks, MPI_INT, found.root, found.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, ranks, places.data(), &members);
  auto made = std::make_unique<ncclComm>();
  made->device = fake::library().current_device;
  MPI_Comm_create_group(MPI_COMM_WORLD, members, found.tag, &made->ranks);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  note("opened", rank, "of", ranks, "on device", made->device, "in process", getpid());
  *comm = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  note("closed after", comm->calls, "calls");
  delete comm;  // MPI ends with the program
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  note("given up");
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error of the stand-in"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

// All ranks make the calls of a group in the same order, so that none waits for a later one.
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           ncclFakeStream) {
  if (!comm->is_here()) return ncclInvalidUsage;
  const MpiTurn turn;
  int rank = 0, width = 0;
  MPI_Comm_rank(comm->ranks, &rank);
  MPI_Type_size(type_of(type), &width);
  if (rank == root && from != to) std::memcpy(to, from, count * static_cast<std::size_t>(width));
  return result_of(MPI_Bcast(to, static_cast<int>(count), type_of(type), root, comm->ranks));
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           ncclFakeStream) {
  if (!comm->is_here()) return ncclInvalidUsage;
  const MpiTurn turn;
  const int number = static_cast<int>(count);
  return result_of(MPI_Allgather(from, number, type_of(type), to, number, type_of(type), comm->ranks));
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, ncclFakeStream) {
  if (!comm->is_here()) return ncclInvalidUsage;
  const MpiTurn turn;
  return result_of(MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, static_cast<int>(count), type_of(type),
                                 reduction == ncclSum ? MPI_SUM : MPI_MAX, comm->ranks));
}

}  // extern "C"
