// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "exchange/channel.h"
#include "exchange/descriptors.h"
#include "exchange/health.h"
#include "exchange/segment.h"
#include "exchange/tables.h"
#include "kernels/doorbell.h"

namespace railyard::exchange {
namespace {

/// A process that exits with ranks around it that stay does not wait longer.
constexpr auto kExitLimit = std::chrono::seconds(3);

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

/// The engines of this process on one node segment. One thread may end them one after another, so
/// only the last one waits for the other ranks, and what any of them uses is kept until then.
struct Company {
  std::mutex mutex;
  int staying = 0;  ///< engines that have not said farewell

  static std::shared_ptr<Company> of(const device::Region* segment) {
    static auto* const mutex = new std::mutex;
    static auto* const companies = new std::map<const device::Region*, std::weak_ptr<Company>>;
    std::lock_guard lock(*mutex);
    std::erase_if(*companies, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Company>& known = (*companies)[segment];
    std::shared_ptr<Company> company = known.lock();
    if (company == nullptr) known = company = std::make_shared<Company>();
    return company;
  }
};

struct Engine::State {
  State(Gpu& g, EngineSetup s, SlotPlan p);
  /// The context must be current: members free GPU memory.
  ~State();
  Status prepare();
  void detach();
  /// False: an engine of this process on the same node segment has yet to leave.
  bool leave();
  bool needed();
  Status refuse_capture(std::span<const CUstream> streams) const;
  Status order(std::span<const CUstream> streams);
  Status follow(std::span<const CUstream> streams);
  kernels::RankStatus* status() const {
    return at<kernels::RankStatus>(setup.segment->host(), layout.status(local));
  }

  Gpu& gpu;
  EngineSetup setup;
  const SlotPlan plan;
  const Segment layout;
  const int local;
  Health health;
  std::unique_ptr<Channel> channel;
  bool attached = false;
  std::unique_ptr<device::Region> tables;
  Descriptors descriptors;
  CUevent over = nullptr;  ///< after the last launch
  CUevent fork = nullptr;  ///< scratch: what another stream had before a launch
  bool launched = false;
  std::shared_ptr<Company> company;
  bool staying = true;
  bool discarded = false;
};

/// What ends before others can do without it goes on serving them from here: the ranks of its node
/// get messages through it until they leave too, and a kernel that an abort has left behind may
/// stand in a stream behind one that takes long.
class Attic {
 public:
  static Attic& instance() {
    static Attic* const attic = new Attic;  // outlives all threads
    return *attic;
  }

  void add(Engine::State* state) {
    std::lock_guard lock(mutex_);
    all_.insert(state);
  }
  void remove(Engine::State* state) {
    std::lock_guard lock(mutex_);
    all_.erase(state);
  }
  void keep(std::unique_ptr<Engine::State> state) {
    std::lock_guard lock(mutex_);
    kept_.push_back(std::move(state));
  }
  /// Frees what is no longer needed.
  void sweep();
  /// The process exits: serves others as long as they need it, within reason.
  void serve_last();

 private:
  Attic() {
    std::atexit([] { instance().serve_last(); });
  }

  const pid_t process_ = getpid();  ///< forked children have no carriers
  std::mutex mutex_;                ///< guards all below
  std::set<Engine::State*> all_;    ///< also those that have not ended
  std::vector<std::unique_ptr<Engine::State>> kept_;
};

Engine::State::State(Gpu& g, EngineSetup s, SlotPlan p)
    : gpu(g),
      setup(std::move(s)),
      plan(std::move(p)),
      layout(setup.topology, plan, setup.topology.node_of(setup.rank)),
      local(setup.topology.local_index(setup.rank)),
      health(setup.names, status()),
      descriptors(g.driver(), g.ordinal()),
      company(Company::of(setup.segment.get())) {
  std::lock_guard lock(company->mutex);
  ++company->staying;
}

Engine::State::~State() {
  const device::Driver& driver = gpu.driver();
  Attic::instance().remove(this);
  detach();
  if (over != nullptr) driver.cuEventDestroy(over);
  if (fork != nullptr) driver.cuEventDestroy(fork);
  gpu.release(setup.holdings[static_cast<size_t>(setup.rank)]);
}

Status Engine::State::prepare() {
  const device::Driver& driver = gpu.driver();
  const topology::Topology& topology = setup.topology;
  std::byte* segment = setup.segment->host();
  for (int dst = 0; dst < topology.ranks(); ++dst) {
    uint64_t* credit = at<uint64_t>(segment, layout.credit(local, dst));
    for (uint32_t slot = 0; slot < plan.slots_per_flow(); ++slot) {
      // A mate that dies this early has its words overwritten by others.
      std::atomic_ref(credit[slot]).store(slot, std::memory_order_relaxed);
    }
  }
  Result<std::unique_ptr<device::Region>> made =
      make_tables(gpu, {topology, plan, layout, *setup.segment, setup.mates, setup.rank});
  if (!made.ok()) return made.status();
  tables = made.take();
  for (CUevent* event : {&over, &fork}) {
    Status status =
        driver.check(driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    if (!status.ok()) return status;
  }

  ChannelSetup half;
  half.topology = &topology;
  half.plan = &plan;
  half.layout = &layout;
  half.rank = setup.rank;
  half.segment = segment;
  half.landing = gpu.landing()->host();
  half.addresses = setup.addresses;
  half.names = setup.names;
  for (const Mate& mate : setup.mates) {
    half.bells.push_back(mate.bell.get());
    half.lives.push_back(mate.life.get());
  }
  channel = std::make_unique<Channel>(std::move(half), health);
  gpu.carrier().allow_spinning(usable_cpus() >= 2 * static_cast<int>(setup.mates.size()));
  Status status = gpu.carrier().attach(*channel);
  attached = status.ok();
  if (attached) Attic::instance().add(this);
  return status;
}

void Engine::State::detach() {
  if (std::exchange(attached, false)) gpu.carrier().detach(*channel);
}

bool Engine::State::leave() {
  std::lock_guard lock(company->mutex);
  if (std::exchange(staying, false)) --company->staying;
  return company->staying == 0;
}

/// Whether somebody may still use any of it.
bool Engine::State::needed() {
  const device::ContextScope scope(gpu.driver(), gpu.context());
  if (launched && gpu.driver().cuEventQuery(over) == CUDA_ERROR_NOT_READY) return true;
  std::lock_guard lock(company->mutex);
  return company->staying > 0 || (attached && !discarded && !channel->mates_gone());
}

void Attic::sweep() {
  std::vector<std::unique_ptr<Engine::State>> free;
  {
    std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(kept_.begin(), kept_.end(),
                                             [](const auto& state) { return state->needed(); });
    std::move(first, kept_.end(), std::back_inserter(free));
    kept_.erase(first, kept_.end());
  }
  for (std::unique_ptr<Engine::State>& state : free) {
    const device::ContextScope scope(state->gpu.driver(), state->gpu.context());
    state.reset();
  }
}

void Attic::serve_last() {
  if (getpid() != process_) return;
  const auto limit = std::chrono::steady_clock::now() + kExitLimit;
  std::vector<Channel*> channels;
  std::lock_guard lock(mutex_);
  for (Engine::State* state : all_) {
    // What a kernel still waits for ends with the process.
    if (!state->channel->settled()) continue;
    state->channel->say_farewell(kLeaving);
    state->gpu.carrier().wake();
    channels.push_back(state->channel.get());
  }
  for (Channel* channel : channels) channel->wait_farewell(limit);
}

/// A graph would replay the kernel on a descriptor that later exchanges have written over.
Status Engine::State::refuse_capture(std::span<const CUstream> streams) const {
  const device::Driver& driver = gpu.driver();
  for (const CUstream stream : streams) {
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    Status status =
        driver.check(driver.cuStreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
    if (!status.ok()) return status;
    if (capture == CU_STREAM_CAPTURE_STATUS_NONE) continue;
    return Status(Code::kInvalidUsage,
                  "messages that railyard carries cannot be captured into a CUDA graph: run them "
                  "outside of graphs, or leave all communicators to NCCL with RAILYARD_COMMS=off");
  }
  return {};
}

/// The launch stream, streams.front(), waits for the communicator's last exchange and for what is
/// already on the other streams.
Status Engine::State::order(std::span<const CUstream> streams) {
  const device::Driver& driver = gpu.driver();
  Status status;
  if (launched) {
    status = driver.check(driver.cuStreamWaitEvent(streams.front(), over, 0), "cuStreamWaitEvent");
  }
  for (const CUstream stream : streams.subspan(1)) {
    if (!status.ok()) break;
    status = driver.check(driver.cuEventRecord(fork, stream), "cuEventRecord");
    if (!status.ok()) break;
    status = driver.check(driver.cuStreamWaitEvent(streams.front(), fork, 0), "cuStreamWaitEvent");
  }
  return status;
}

/// What comes later on any of the streams waits for the exchange.
Status Engine::State::follow(std::span<const CUstream> streams) {
  const device::Driver& driver = gpu.driver();
  Status status = driver.check(driver.cuEventRecord(over, streams.front()), "cuEventRecord");
  for (const CUstream stream : streams.subspan(1)) {
    if (!status.ok()) break;
    status = driver.check(driver.cuStreamWaitEvent(stream, over, 0), "cuStreamWaitEvent");
  }
  return status;
}

uint64_t segment_bytes(const topology::Topology& topology, const SlotPlan& plan, int node) {
  return Segment(topology, plan, node).bytes();
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Engine>> Engine::create(Gpu& gpu, EngineSetup setup) {
  Result<SlotPlan> plan = SlotPlan::make(setup.topology, setup.holdings);
  if (!plan.ok()) return plan.status();
  Attic::instance().sweep();
  const device::ContextScope scope(gpu.driver(), gpu.context());
  std::unique_ptr<Engine> engine(
      new Engine(std::make_unique<State>(gpu, std::move(setup), plan.take())));
  if (Status status = engine->state_->prepare(); !status.ok()) return status;
  return engine;
}

Engine::~Engine() {
  if (state_->channel != nullptr && state_->staying) state_->channel->abandon();
  state_->leave();
  Attic::instance().keep(std::move(state_));
  Attic::instance().sweep();
}

Status Engine::launch(const Exchange& exchange, std::span<const CUstream> streams) {
  State& s = *state_;
  if (Status broken = error(); !broken.ok()) return broken;
  const device::Driver& driver = s.gpu.driver();
  const device::ContextScope scope(driver, s.gpu.context());
  if (Status captured = s.refuse_capture(streams); !captured.ok()) return captured;
  Result<CUdeviceptr> work = s.descriptors.write(exchange, s.setup.rank, s.setup.topology.ranks());
  if (!work.ok()) return work.status();
  Status status = s.order(streams);
  if (status.ok()) {
    CUdeviceptr table = s.tables->device();
    void* args[] = {&table, &*work};
    s.channel->launched();
    s.gpu.carrier().wake();
    status =
        driver.check(driver.cuLaunchKernel(s.gpu.kernel(), s.gpu.blocks(), 1, 1, s.gpu.threads(), 1,
                                           1, 0, streams.front(), args, nullptr),
                     "launching the exchange kernel");
    if (!status.ok()) s.channel->withdrawn();
  }
  if (!status.ok()) {
    s.descriptors.withdraw();
    return status;
  }
  s.launched = true;
  return s.follow(streams);
}

Status Engine::error() const { return state_->health.error(); }

void Engine::abort() {
  State& s = *state_;
  kernels::RankStatus* status = s.status();
  std::atomic_ref(status->abort).store(1, std::memory_order_release);
  kernels::notify(at<kernels::Doorbell>(s.setup.segment->host(), s.layout.doorbell(s.local)));
  s.channel->abandon();
}

void Engine::discard() {
  abort();
  state_->discarded = true;
}

Status Engine::farewell() {
  State& s = *state_;
  const device::Driver& driver = s.gpu.driver();
  const device::ContextScope scope(driver, s.gpu.context());
  Status status;
  if (s.launched) status = driver.check(driver.cuEventSynchronize(s.over), "cuEventSynchronize");
  if (status.ok()) status = error();
  if (!status.ok()) {
    s.channel->abandon();
    return status;
  }
  const bool last = s.leave();
  s.channel->say_farewell();
  s.gpu.carrier().wake();
  s.channel->wait_farewell(last);
  return error();
}

Statistics Engine::statistics() const {
  const kernels::RankStatus* status = state_->status();
  Statistics result;
  result.exchanges =
      std::atomic_ref(const_cast<uint64_t&>(status->exchanges)).load(std::memory_order_acquire);
  result.traffic = status->traffic;
  return result;
}

const SlotPlan& Engine::plan() const { return state_->plan; }

}  // namespace railyard::exchange
