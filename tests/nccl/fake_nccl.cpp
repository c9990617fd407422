#include "nccl/fake_nccl.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace fake::nccl { namespace {

constexpr int polls = 3;  // rank with a call in progress

struct Posted {  // per rank: the collective, and the contents of `from` when the stream reached it
  std::string function;
  std::size_t count = 0, width = 1;
  int number = 0;  // root, or reduction
  bool arrived = false;
  std::vector<char> data;
};

/// The communicators of one id.
struct Clique {
  int size = 0, opened = 0, finalized = 0;
  bool broken = false;
  std::set<int> devices;
  std::vector<std::vector<Posted>> collectives;  // [collectives, ranks]
};

std::recursive_mutex mutex;  // of all following work; a stream may run its work immediately
Library all;
std::map<int, std::shared_ptr<Clique>> cliques;
std::set<ncclComm_t> live;
int ids = 0;
thread_local int depth = 0;
thread_local ncclResult_t group_result = ncclSuccess;
thread_local std::vector<std::function<void()>> group;
thread_local std::set<ncclComm_t> in_group;

}  // namespace
}  // namespace fake::nccl

struct ncclComm {
  enum class Stage { opening, open, finalizing, finalized };

  int rank = 0, device = 0;
  int owner = 0;  // the thread's rank
  std::shared_ptr<fake::nccl::Clique> clique;
  Stage stage = Stage::opening;
  int in_progress = 0;  // polls until the last call is complete
  ncclResult_t next = ncclSuccess, state = ncclSuccess;
  std::size_t posted = 0;  // collectives
  bool aborted = false;
  std::shared_ptr<ncclComm> self;  // until it is freed; work of streams keeps it longer

  /// As NCCL reports it at the next poll.
  ncclResult_t ask() {
    if (state != ncclSuccess) return state;
    if (in_progress > 0 && --in_progress > 0) return ncclInProgress;
    if (next != ncclSuccess) return state = next;
    if (clique->broken && fake::nccl::all.peers_notice) return state = ncclRemoteError;
    if (stage == Stage::opening && clique->opened < clique->size) return ncclInProgress;
    if (stage == Stage::opening && clique->devices.size() < static_cast<std::size_t>(clique->size))
      return state = ncclInvalidUsage;
    if (stage == Stage::opening) stage = Stage::open;
    if (stage == Stage::finalizing && clique->finalized < clique->size) return ncclInProgress;
    if (stage == Stage::finalizing) stage = Stage::finalized;
    return ncclSuccess;
  }
};

namespace fake::nccl {
namespace {

void breach(const std::string& function, const std::string& what) {
  all.breaches.push_back("rank " + std::to_string(rank) + ", " + function + ": " + what);
}

/// Called with the lock, which it releases while it stalls. The immediate result of the call, if any.
ncclResult_t enter(std::unique_lock<std::recursive_mutex>& lock, const Call& call, ncclComm_t comm, bool has_comm) {
  const std::string& function = call.function;
  const bool asks = function == "ncclCommGetAsyncError", aborts = function == "ncclCommAbort";
  if (!asks) all.calls.push_back(call);
  if (has_comm && live.count(comm) == 0) {
    breach(function, "a communicator that is gone");
    return ncclInvalidArgument;
  }
  if (has_comm && !asks && !aborts) {
    if (comm->in_progress > 0 || comm->stage == ncclComm::Stage::opening)
      breach(function, "the last call is in progress");
    if (comm->state != ncclSuccess) breach(function, "the communicator has failed");
    if (comm->owner != call.rank) breach(function, "another rank's communicator");
  }
  const auto fault = std::find_if(all.faults.begin(), all.faults.end(),
                                  [&](const Fault& one) { return one.function == function && one.rank == rank; });
  if (fault == all.faults.end() || fault->spared-- > 0) return ncclSuccess;
  const Fault found = *fault;
  lock.unlock();
  if (found.before) found.before();
  lock.lock();
  if (!found.later) return found.result;
  if (has_comm) comm->next = found.result;
  return ncclSuccess;
}

/// A call that completes after some polls.
ncclResult_t begin(ncclComm_t comm) {
  comm->in_progress = polls;
  return ncclInProgress;
}

/// Work of a stream: one rank's part of a collective.
bool take_part(const std::shared_ptr<ncclComm>& comm, std::size_t index, const char* from, char* to) {
  const std::lock_guard lock(mutex);
  if (comm->aborted) return true;
  std::vector<Posted>& ranks = comm->clique->collectives[index];
  Posted& own = ranks[static_cast<std::size_t>(comm->rank)];
  const std::size_t bytes = own.count * own.width;
  if (!own.arrived && (own.function != "ncclBroadcast" || own.number == comm->rank))
    own.data.assign(from, from + bytes);
  own.arrived = true;
  for (const Posted& other : ranks) {
    if (!other.arrived || all.hangs) return false;
    const bool same = other.function == own.function && other.count == own.count && other.number == own.number;
    if (!same) return false;  // NCCL does not document this case
  }
  if (own.function == "ncclBroadcast") {
    std::memcpy(to, ranks[static_cast<std::size_t>(own.number)].data.data(), bytes);
  } else if (own.function == "ncclAllGather") {
    for (const Posted& other : ranks) to = std::copy(other.data.begin(), other.data.end(), to);
  } else {
    std::vector<std::uint64_t> result(own.count), numbers(own.count);
    for (const Posted& other : ranks) {
      std::memcpy(numbers.data(), other.data.data(), bytes);
      for (std::size_t i = 0; i < own.count; ++i)
        result[i] = own.number == ncclSum ? result[i] + numbers[i] : std::max(result[i], numbers[i]);
    }
    std::memcpy(to, result.data(), bytes);
  }
  return true;
}

ncclResult_t collective(const char* function, const void* from, void* to, std::size_t count, ncclDataType_t type,
                        int number, ncclComm_t comm, void* stream) {
  std::unique_lock lock(mutex);
  const std::size_t width = type == ncclUint64 ? 8 : 1;
  ncclResult_t result = enter(lock, {rank, function, count * width, number, depth > 0, stream}, comm, true);
  if (result == ncclSuccess && all.device && all.device() != comm->device)
    breach(function, "another device is current");
  if (depth > 0 && result != ncclSuccess) group_result = result;
  if (result != ncclSuccess) return result;
  const auto post = [=] {
    Clique& clique = *comm->clique;
    const std::size_t index = comm->posted++;
    if (index == clique.collectives.size()) clique.collectives.emplace_back(static_cast<std::size_t>(clique.size));
    clique.collectives[index][static_cast<std::size_t>(comm->rank)] = {function, count, width, number, false, {}};
    all.enqueue(stream, [self = comm->self, index, from, to] {
      return take_part(self, index, static_cast<const char*>(from), static_cast<char*>(to));
    });
  };
  if (depth > 0) {
    group.emplace_back(post);
    in_group.insert(comm);
    return ncclSuccess;
  }
  post();
  return begin(comm);
}

}  // namespace

Library& library() { return all; }

void reset() {
  all = {};
  cliques.clear();
}

}  // namespace fake::nccl

using namespace fake::nccl;

// Leaves the function with the injected result.
#define ENTER(function, comm, has_comm)     \
  std::unique_lock lock(fake::nccl::mutex); \
  if (const ncclResult_t result = enter(lock, {rank, function}, comm, has_comm); result != ncclSuccess) return result

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  ENTER("ncclGetVersion", nullptr, false);
  *version = all.versions.count(rank) != 0 ? all.versions[rank] : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ENTER("ncclGetUniqueId", nullptr, false);
  ++ids;
  std::memcpy(id->internal + sizeof id->internal - sizeof ids, &ids,
              sizeof ids);  // its end: the whole buffer is needed
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int of_rank, ncclConfig_t* config) {
  ENTER("ncclCommInitRankConfig", nullptr, false);
  if (config->blocking != 0) breach("ncclCommInitRankConfig", "it may block");
  int number = 0;
  std::memcpy(&number, id.internal + sizeof id.internal - sizeof number, sizeof number);
  if (number < 1 || number > ids) return ncclInvalidArgument;
  std::shared_ptr<Clique>& clique = cliques[number];
  if (!clique) clique = std::make_shared<Clique>();
  if (clique->opened > 0 && clique->size != ranks) breach("ncclCommInitRankConfig", "another size");
  clique->size = ranks;
  ++clique->opened;
  const auto made = std::make_shared<ncclComm>();
  made->rank = of_rank;
  made->owner = rank;
  made->device = all.device ? all.device() : of_rank;
  made->clique = clique;
  made->self = made;
  clique->devices.insert(made->device);
  *comm = made.get();
  live.insert(*comm);
  ++all.live;
  for (const Fault& fault : all.faults)
    if (fault.function == "ncclCommInitRankConfig" && fault.rank == rank) made->next = fault.result;
  return begin(*comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  ENTER("ncclCommGetAsyncError", comm, true);
  *state = comm->ask();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ENTER("ncclCommFinalize", comm, true);
  comm->stage = ncclComm::Stage::finalizing;
  ++comm->clique->finalized;
  return begin(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ENTER("ncclCommDestroy", comm, true);
  if (comm->stage != ncclComm::Stage::finalized) breach("ncclCommDestroy", "it is not finalized");
  live.erase(comm);
  --all.live;
  comm->self.reset();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ENTER("ncclCommAbort", comm, true);
  comm->aborted = true;
  comm->clique->broken = true;
  live.erase(comm);
  --all.live;
  comm->self.reset();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "a remote error of the fake" : "an error of the fake";
}
const char* ncclGetLastError(ncclComm_t) { return "its last\nwords"; }

ncclResult_t ncclGroupStart() {
  ENTER("ncclGroupStart", nullptr, false);
  ++depth;
  ++all.open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  std::unique_lock lock(fake::nccl::mutex);
  if (depth == 0) {
    breach("ncclGroupEnd", "there is no group");
    return ncclInvalidUsage;
  }
  --depth;  // all following calls
  --all.open_groups;
  const ncclComm_t comm = in_group.empty() ? nullptr : *in_group.begin();
  if (in_group.size() > 1) breach("ncclGroupEnd", "several communicators");
  ncclResult_t result = enter(lock, {rank, "ncclGroupEnd"}, comm, comm != nullptr);
  if (result == ncclSuccess) result = group_result;
  if (result == ncclSuccess)
    for (const auto& post : group) post();
  group.clear();
  in_group.clear();
  group_result = ncclSuccess;
  return result != ncclSuccess || comm == nullptr ? result : begin(comm);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           ncclFakeStream stream) {
  return collective("ncclBroadcast", from, to, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           ncclFakeStream stream) {
  return collective("ncclAllGather", from, to, count, type, 0, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, ncclFakeStream stream) {
  return collective("ncclAllReduce", from, to, count, type, reduction, comm, stream);
}

}  // extern "C"
