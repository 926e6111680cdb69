// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "base/log.h"
#include "exchange/captures.h"
#include "exchange/channel.h"
#include "exchange/company.h"
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

struct Engine::State {
  State(Gpu& g, EngineSetup s, SlotPlan p);
  /// The context must be current: members free GPU memory.
  ~State();
  Status prepare();
  void detach();
  /// False: an engine of this process on the same node segment has yet to leave.
  bool leave();
  bool needed();
  Status start(const Descriptor& work, std::span<const CUstream> streams);
  Status capture(const Capture& into, const Descriptor& work, std::span<const CUstream> streams);
  Status order(std::span<const CUstream> streams, const Capture& into);
  Status launch_kernel(const Descriptor& work, CUstream stream);
  Status follow(std::span<const CUstream> streams, const Capture& into);
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
  Captures captures;
  CUevent over = nullptr;      ///< after the last launch or replay
  CUevent fork = nullptr;      ///< scratch: what another stream had before a launch
  CUevent captured = nullptr;  ///< after the last exchange in the capture of last_capture
  cuuint64_t last_capture = 0;
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
  /// Frees what is no longer needed of one GPU. Freeing waits for all that the GPU has to do, and
  /// another one's may need what this thread has yet to start.
  void sweep(const Gpu& gpu);
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
      captures(g.driver()),
      company(Company::of(setup.segment.get())) {
  std::lock_guard lock(company->mutex);
  ++company->staying;
}

Engine::State::~State() {
  const device::Driver& driver = gpu.driver();
  Attic::instance().remove(this);
  detach();
  for (const CUevent event : {over, fork, captured}) {
    if (event != nullptr) driver.cuEventDestroy(event);
  }
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
  for (CUevent* event : {&over, &fork, &captured}) {
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
  if (captures.any()) return true;
  const device::ContextScope scope(gpu.driver(), gpu.context());
  if (over != nullptr && gpu.driver().cuEventQuery(over) == CUDA_ERROR_NOT_READY) return true;
  std::lock_guard lock(company->mutex);
  return company->staying > 0 || (attached && !discarded && !channel->mates_gone());
}

void Attic::sweep(const Gpu& gpu) {
  std::vector<std::unique_ptr<Engine::State>> free;
  {
    std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(kept_.begin(), kept_.end(), [&gpu](const auto& state) {
      return &state->gpu != &gpu || state->needed();
    });
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

Status Engine::State::start(const Descriptor& work, std::span<const CUstream> streams) {
  Status status = order(streams, {});
  if (status.ok()) {
    channel->launched();
    gpu.carrier().wake();
    status = launch_kernel(work, streams.front());
    if (!status.ok()) channel->withdrawn();
  }
  if (!status.ok()) {
    Descriptors::withdraw(work);
    return status;
  }
  return follow(streams, {});
}

Status Engine::State::capture(const Capture& into, const Descriptor& work,
                              std::span<const CUstream> streams) {
  const device::Driver& driver = gpu.driver();
  descriptors.hold(work);
  Result<Captures::Entry*> entry = captures.keep(into.graph, work.block, *channel, gpu.carrier());
  if (!entry.ok()) return entry.status();
  Status status = order(streams, into);
  if (status.ok()) {
    status = driver.check(driver.cuLaunchHostFunc(streams.front(), &Captures::replay, *entry),
                          "cuLaunchHostFunc");
  }
  if (status.ok()) status = launch_kernel(work, streams.front());
  if (!status.ok()) return status;
  Captures::complete(**entry);
  return follow(streams, into);
}

Status Engine::State::launch_kernel(const Descriptor& work, CUstream stream) {
  CUdeviceptr table = tables->device(), address = work.work;
  void* args[] = {&table, &address};
  return gpu.driver().check(
      gpu.driver().cuLaunchKernel(gpu.kernel(), gpu.blocks(), 1, 1, gpu.threads(), 1, 1, 0, stream,
                                  args, nullptr),
      "launching the exchange kernel");
}

/// The launch stream, streams.front(), waits for the communicator's last exchange and for what is
/// already on the other streams. A graph waits, when it is launched, for what was launched or
/// replayed before it; within it one exchange depends on the other.
Status Engine::State::order(std::span<const CUstream> streams, const Capture& into) {
  const device::Driver& driver = gpu.driver();
  const CUstream front = streams.front();
  const bool again = into.graph != nullptr && into.id == last_capture;
  const unsigned how =
      into.graph != nullptr && !again ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT;
  Status status = driver.check(driver.cuStreamWaitEvent(front, again ? captured : over, how),
                               "cuStreamWaitEvent");
  for (const CUstream stream : streams.subspan(1)) {
    if (!status.ok()) break;
    status = driver.check(driver.cuEventRecord(fork, stream), "cuEventRecord");
    if (!status.ok()) break;
    status = driver.check(driver.cuStreamWaitEvent(front, fork, 0), "cuStreamWaitEvent");
  }
  return status;
}

/// What comes later on any of the streams waits for the exchange.
Status Engine::State::follow(std::span<const CUstream> streams, const Capture& into) {
  const device::Driver& driver = gpu.driver();
  const CUstream front = streams.front();
  CUevent join = over;
  Status status;
  if (into.graph != nullptr) {
    join = captured;
    status = driver.check(driver.cuEventRecordWithFlags(over, front, CU_EVENT_RECORD_EXTERNAL),
                          "cuEventRecordWithFlags");
  }
  if (status.ok()) status = driver.check(driver.cuEventRecord(join, front), "cuEventRecord");
  if (status.ok() && into.graph != nullptr) last_capture = into.id;
  for (const CUstream stream : streams.subspan(1)) {
    if (!status.ok()) break;
    status = driver.check(driver.cuStreamWaitEvent(stream, join, 0), "cuStreamWaitEvent");
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
  const device::ContextScope scope(gpu.driver(), gpu.context());
  std::unique_ptr<Engine> engine(
      new Engine(std::make_unique<State>(gpu, std::move(setup), plan.take())));
  if (Status status = engine->state_->prepare(); !status.ok()) return status;
  return engine;
}

void Engine::tidy(const Gpu& gpu) { Attic::instance().sweep(gpu); }

Engine::~Engine() {
  if (state_->channel != nullptr && state_->staying) state_->channel->abandon();
  state_->leave();
  const Gpu& gpu = state_->gpu;
  Attic::instance().keep(std::move(state_));
  tidy(gpu);
}

Status Engine::launch(const Exchange& exchange, std::span<const CUstream> streams) {
  State& s = *state_;
  if (Status broken = error(); !broken.ok()) return broken;
  const device::Driver& driver = s.gpu.driver();
  const device::ContextScope scope(driver, s.gpu.context());
  const Result<Capture> into = find_capture(driver, streams);
  if (!into.ok()) return into.status();
  for (const std::byte* block : s.captures.take_returned()) s.descriptors.give_back(block);
  const Result<Descriptor> work =
      s.descriptors.write(exchange, s.setup.rank, s.setup.topology.ranks());
  if (!work.ok()) return work.status();
  return into->graph == nullptr ? s.start(*work, streams) : s.capture(*into, *work, streams);
}

Status Engine::begin_outside(std::span<const CUstream> streams) {
  State& s = *state_;
  const device::ContextScope scope(s.gpu.driver(), s.gpu.context());
  const Result<Capture> into = find_capture(s.gpu.driver(), streams);
  if (!into.ok()) return into.status();
  if (into->graph != nullptr && into->id != s.last_capture) return {};
  return s.order(streams, *into);
}

Status Engine::end_outside(std::span<const CUstream> streams) {
  State& s = *state_;
  const device::Driver& driver = s.gpu.driver();
  const device::ContextScope scope(driver, s.gpu.context());
  const Result<Capture> into = find_capture(driver, streams);
  if (!into.ok()) return into.status();
  if (into->graph == nullptr) return s.follow(streams, *into);
  if (into->id != s.last_capture) return {};
  return driver.check(driver.cuEventRecord(s.captured, streams.front()), "cuEventRecord");
}

Status Engine::check_streams(std::span<const CUstream> streams) const {
  const device::Driver& driver = state_->gpu.driver();
  const device::ContextScope scope(driver, state_->gpu.context());
  const Result<Capture> into = find_capture(driver, streams);
  return into.ok() ? Status() : into.status();
}

bool Engine::may_use(const void* memory) const { return state_->gpu.may_use(memory); }

Status Engine::error() const { return state_->health.error(); }

void Engine::abort() {
  State& s = *state_;
  kernels::RankStatus* status = s.status();
  std::atomic_ref(status->abort).store(1, std::memory_order_release);
  kernels::notify(at<kernels::Doorbell>(s.setup.segment->host(), s.layout.doorbell(s.local)));
  s.channel->abandon();
  s.captures.abandon();
}

void Engine::discard() {
  abort();
  state_->discarded = true;
}

Status Engine::farewell() {
  State& s = *state_;
  const device::Driver& driver = s.gpu.driver();
  const device::ContextScope scope(driver, s.gpu.context());
  Status status = error();
  if (status.ok() && s.captures.any()) {
    log::info(
        "%s: the end of a communicator waits until the CUDA graphs with its messages are gone",
        s.setup.names[static_cast<size_t>(s.setup.rank)].c_str());
    s.captures.wait();
  }
  // Also with an error: a kernel may still be about to report its own.
  const Status over = driver.check(driver.cuEventSynchronize(s.over), "cuEventSynchronize");
  if (status.ok()) status = over.ok() ? error() : over;
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
