// SPDX-License-Identifier: Apache-2.0
#include "rank.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "require.h"

namespace property {
namespace {

constexpr int kStreams = 2;   ///< per communicator; no two communicators share one
constexpr int kMaxBatch = 3;  ///< exchanges under way before the results are looked at

uint64_t word(int value) { return static_cast<uint64_t>(value); }

struct Type {
  ncclDataType_t type;
  uint64_t bytes;
};
constexpr std::array kTypes = {
    Type{ncclInt8, 1},  Type{ncclUint8, 1},   Type{ncclFloat16, 2}, Type{ncclBfloat16, 2},
    Type{ncclInt32, 4}, Type{ncclFloat32, 4}, Type{ncclInt64, 8},   Type{ncclFloat64, 8},
};

/// Some type that `bytes` is a multiple of: the two ends of a message need not name the same one.
Type choose_type(Random& random, uint64_t bytes) {
  for (;;) {
    const Type& type = kTypes[random.below(kTypes.size())];
    if (bytes % type.bytes == 0) return type;
  }
}

void CUDART_CB delay(void* milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<uintptr_t>(milliseconds)));
}

/// Mixes operations of different flows, keeping the order within each.
template <typename Operation, typename FlowOf>
void mix(Random& random, std::vector<Operation>& operations, FlowOf flow_of) {
  std::map<int, std::vector<Operation>> by_flow;
  std::vector<int> turns;
  for (const Operation& operation : operations) {
    turns.push_back(flow_of(operation));
    by_flow[turns.back()].push_back(operation);
  }
  random.shuffle(turns);
  std::map<int, size_t> next;
  for (size_t i = 0; i < turns.size(); ++i) {
    operations[i] = by_flow[turns[i]][next[turns[i]]++];
  }
}

std::string join(const std::vector<uint64_t>& numbers) {
  std::string text;
  for (uint64_t number : numbers) {
    if (!text.empty()) text += ", ";
    text += std::to_string(number);
  }
  return "[" + text + "]";
}

}  // namespace

Rank::Rank(const Options& options, int rank, int ranks, Share share)
    : options_(options),
      rank_(rank),
      ranks_(ranks),
      share_(std::move(share)),
      creations_(plan_creations(options.seed, ranks)),
      members_(creations_.size()) {}

void Rank::run() {
  create_communicators();
  Random random{options_.seed, 2};
  for (int number = 0; number < options_.exchanges;) {
    const int batch = std::min(options_.exchanges - number, random.range(1, kMaxBatch));
    send_.clear();
    recv_.clear();
    std::vector<std::pair<Posts, Exchange>> prepared;
    for (int i = 0; i < batch; ++i) {
      const Exchange exchange =
          plan_exchange(options_.seed, number + i, creations_, options_.limits);
      prepared.emplace_back(prepare(number + i, exchange), exchange);
    }
    send_.allocate();
    recv_.allocate();
    send_.fill_host();
    for (const auto& [posts, exchange] : prepared) post_times(number++, exchange, posts);
    finish(number - 1);
  }
  if (!options_.report.empty()) write_report();
  destroy_communicators();
}

const std::vector<int>& Rank::world_ranks(size_t creation) const {
  const auto communicator = static_cast<size_t>(members_[creation].communicator);
  return creations_[creation].communicators[communicator];
}

int Rank::position(const std::vector<int>& members) const {
  const auto found = std::find(members.begin(), members.end(), rank_);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

void Rank::create_communicators() {
  std::vector<ncclUniqueId> ids;
  for (const Creation& creation : creations_) {
    if (creation.parent >= 0) continue;
    ids.emplace_back();
    if (rank_ == 0) REQUIRE(ncclGetUniqueId(&ids.back()));
  }
  share_(ids);

  // Some ranks create all in one group, others one after the other.
  Random random{options_.seed, 3, word(rank_)};
  const bool grouped = random.chance(0.5);
  if (grouped) REQUIRE(ncclGroupStart());
  size_t next_id = 0;
  for (size_t c = 0; c < creations_.size(); ++c) {
    if (creations_[c].parent >= 0) continue;
    const int at = position(creations_[c].communicators.front());
    REQUIRE(ncclCommInitRank(&members_[c].comm, ranks_, ids[next_id++], at));
  }
  if (grouped) REQUIRE(ncclGroupEnd());

  for (size_t c = 0; c < creations_.size(); ++c) {
    const Creation& creation = creations_[c];
    Member& member = members_[c];
    if (creation.parent >= 0) {
      const int color = creation.color[static_cast<size_t>(rank_)];
      REQUIRE(ncclCommSplit(members_[static_cast<size_t>(creation.parent)].comm,
                            color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                            creation.key[static_cast<size_t>(rank_)], &member.comm, nullptr));
    }
    for (size_t i = 0; i < creation.communicators.size(); ++i) {
      if (position(creation.communicators[i]) >= 0) member.communicator = static_cast<int>(i);
    }
    if (member.communicator < 0) continue;
    int at = -1;
    REQUIRE(ncclCommUserRank(member.comm, &at));
    if (at != position(world_ranks(c))) fail("NCCL gave another rank than the split asks for");
    member.sent_bytes.resize(world_ranks(c).size());
    member.sent_messages.resize(world_ranks(c).size());
  }
  create_streams(random);
}

void Rank::create_streams(Random& random) {
  for (Member& member : members_) {
    if (member.communicator < 0) continue;
    member.streams.resize(kStreams);
    for (cudaStream_t& stream : member.streams) {
      REQUIRE(cudaStreamCreateWithFlags(
          &stream, random.chance(0.5) ? cudaStreamNonBlocking : cudaStreamDefault));
    }
  }
}

Rank::Posts Rank::prepare(int number, const Exchange& exchange) {
  Random random{options_.seed, 4, word(number), word(rank_)};
  Posts posts;
  for (const Part& part : exchange.parts) {
    Member& member = members_[static_cast<size_t>(part.creation)];
    if (member.communicator != part.communicator) continue;
    Post post;
    post.member = &member;
    prepare_messages(random, number, part, post);
    if (part.all_to_all) prepare_all_to_all(random, number, part, post);
    for (Operation& operation : post.operations) {
      operation.stream = member.streams[random.below(member.streams.size())];
    }
    count_sends(post, exchange.times);
    posts.push_back(std::move(post));
  }
  return posts;
}

void Rank::prepare_messages(Random& random, int number, const Part& part, Post& post) {
  const auto& members = world_ranks(static_cast<size_t>(part.creation));
  std::map<std::pair<int, int>, int> numbers;
  for (const Message& message : part.messages) {
    const int index = numbers[{message.src, message.dst}]++;
    const Content content{options_.seed, number, part.creation, message.src,
                          message.dst,   index,  message.bytes};
    for (const bool sends : {true, false}) {
      if ((sends ? message.src : message.dst) != rank_) continue;
      Operation operation;
      operation.kind = sends ? Kind::kSend : Kind::kRecv;
      operation.step = message.step;
      operation.bytes = operation.total = message.bytes;
      const int peer = sends ? message.dst : message.src;
      operation.peer =
          static_cast<int>(std::find(members.begin(), members.end(), peer) - members.begin());
      if (sends) {
        operation.send_offset = send_.add(random, {content});
      } else {
        operation.recv_offset = recv_.add(random, {content});
      }
      post.operations.push_back(operation);
    }
  }
  // Steps keep their order, and within a step the messages of one flow keep theirs.
  mix(random, post.operations, [](const Operation& operation) {
    return operation.peer * 2 + (operation.kind == Kind::kSend ? 1 : 0);
  });
  std::stable_sort(post.operations.begin(), post.operations.end(),
                   [](const Operation& a, const Operation& b) { return a.step < b.step; });
}

/// The all-to-all comes before the messages of its step.
void Rank::prepare_all_to_all(Random& random, int number, const Part& part, Post& post) {
  const auto& members = world_ranks(static_cast<size_t>(part.creation));
  std::vector<Content> sends, recvs;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto content = [&](int src, int dst) {
      return Content{options_.seed, number, part.creation, src, dst, -1, part.all_to_all_bytes};
    };
    sends.push_back(content(rank_, members[i]));
    recvs.push_back(content(members[i], rank_));
  }
  Operation operation;
  operation.kind = Kind::kAllToAll;
  operation.step = part.all_to_all_step;
  operation.bytes = part.all_to_all_bytes;
  operation.total = part.all_to_all_bytes * members.size();
  operation.send_offset = send_.add(random, std::move(sends));
  operation.recv_offset = recv_.add(random, std::move(recvs));
  const auto at =
      std::find_if(post.operations.begin(), post.operations.end(),
                   [&](const Operation& other) { return other.step >= operation.step; });
  post.operations.insert(at, operation);
}

void Rank::count_sends(const Post& post, int times) {
  Member& member = *post.member;
  const auto count = [&](size_t peer, uint64_t bytes) {
    member.sent_bytes[peer] += word(times) * bytes;
    member.sent_messages[peer] += word(times);
  };
  for (const Operation& operation : post.operations) {
    if (operation.kind == Kind::kSend) count(static_cast<size_t>(operation.peer), operation.bytes);
    // NCCL drops an all-to-all of nothing; nobody waits for it.
    if (operation.kind != Kind::kAllToAll || operation.bytes == 0) continue;
    for (size_t peer = 0; peer < member.sent_bytes.size(); ++peer) count(peer, operation.bytes);
  }
}

/// An exchange that is done more than once is captured by some ranks, which replay it most times.
void Rank::post_times(int number, const Exchange& exchange, const Posts& posts) {
  Random random{options_.seed, 7, word(number), word(rank_)};
  const Graph* graph = nullptr;
  if (exchange.times > 1 && !posts.empty() && random.chance(0.5)) {
    std::vector<cudaStream_t> streams;
    for (const Post& post : posts) {
      streams.insert(streams.end(), post.member->streams.begin(), post.member->streams.end());
    }
    random.shuffle(streams);
    // In global mode what other ranks in this process do would spoil the capture.
    const auto mode =
        random.chance(0.5) ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed;
    graphs_.push_back(std::make_unique<Graph>(
        streams, mode, [&] { post_exchange(number, exchange.steps, posts); }));
    graph = graphs_.back().get();
  }
  for (int i = 0; i < exchange.times; ++i) {
    if (graph != nullptr && random.chance(0.7)) {
      graph->launch();
      for (const Post& post : posts) ++post.member->replays;
    } else {
      post_exchange(number, exchange.steps, posts);
    }
  }
}

void Rank::post_exchange(int number, int steps, const Posts& posts) {
  Random random{options_.seed, 5, word(number), word(rank_)};
  if (random.chance(0.05) && !posts.empty()) {  // be late now and then
    REQUIRE(cudaLaunchHostFunc(posts.front().member->streams.front(), delay,
                               reinterpret_cast<void*>(1 + random.below(5))));
  }
  int first = 0;
  for (int step = 1; step <= steps; ++step) {
    if (step < steps && random.chance(0.5)) continue;  // the next step joins this group
    post_group(random, first, step, posts);
    first = step;
  }
}

void Rank::post_group(Random& random, int first_step, int end_step, const Posts& posts) {
  std::vector<std::pair<const Member*, const Operation*>> chosen;
  for (const Post& post : posts) {
    for (const Operation& operation : post.operations) {
      if (operation.step < first_step || operation.step >= end_step) continue;
      chosen.emplace_back(post.member, &operation);
    }
  }
  for (const auto& [member, operation] : chosen) {
    if (operation->kind != Kind::kRecv && operation->total > 0) {
      REQUIRE(cudaMemcpyAsync(send_.device(operation->send_offset),
                              send_.host(operation->send_offset), operation->total,
                              cudaMemcpyHostToDevice, operation->stream));
    }
    if (operation->kind != Kind::kSend && operation->total > 0) {
      REQUIRE(cudaMemsetAsync(recv_.device(operation->recv_offset), 0x5a, operation->total,
                              operation->stream));
    }
  }
  if (chosen.empty() && random.chance(0.5)) return;
  const bool alone = chosen.size() == 1 && random.chance(0.5);
  const int depth = alone ? 0 : random.range(1, 2);
  for (int i = 0; i < depth; ++i) REQUIRE(ncclGroupStart());
  for (const auto& [member, operation] : chosen) post_operation(random, *member, *operation);
  for (int i = 0; i < depth; ++i) REQUIRE(ncclGroupEnd());
}

void Rank::post_operation(Random& random, const Member& member, const Operation& operation) {
  const Type type = choose_type(random, operation.bytes);
  const size_t count = operation.bytes / type.bytes;
  const std::byte* from = send_.device(operation.send_offset);
  std::byte* to = recv_.device(operation.recv_offset);
  switch (operation.kind) {
    case Kind::kSend:
      REQUIRE(ncclSend(from, count, type.type, operation.peer, member.comm, operation.stream));
      break;
    case Kind::kRecv:
      REQUIRE(ncclRecv(to, count, type.type, operation.peer, member.comm, operation.stream));
      break;
    case Kind::kAllToAll:
      REQUIRE(ncclAlltoAll(from, to, count, type.type, member.comm, operation.stream));
      break;
  }
}

void Rank::finish(int last_exchange) {
  for (const Member& member : members_) {
    for (cudaStream_t stream : member.streams) REQUIRE(cudaStreamSynchronize(stream));
  }
  graphs_.clear();
  for (const Member& member : members_) {
    if (member.comm == nullptr) continue;
    ncclResult_t state = ncclSuccess;
    REQUIRE(ncclCommGetAsyncError(member.comm, &state));
    require(state, "asynchronous error of a communicator");
  }
  const std::string where = "rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) +
                            ", after exchange " + std::to_string(last_exchange) + ": ";
  const std::string sent = send_.check(false);
  if (!sent.empty()) fail(where + "send buffers were written: " + sent);
  const std::string received = recv_.check(options_.spoil);
  if (!received.empty()) fail(where + received);
}

void Rank::write_report() const {
  const int fd = open(options_.report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot open " + options_.report);
  for (size_t c = 0; c < members_.size(); ++c) {
    const Member& member = members_[c];
    if (member.communicator < 0) continue;
    std::vector<uint64_t> world;
    for (int rank : world_ranks(c)) world.push_back(word(rank));
    const std::string line =
        "{\"creation\": " + std::to_string(c) + ", \"rank\": " + std::to_string(rank_) +
        ", \"members\": " + join(world) + ", \"bytes\": " + join(member.sent_bytes) +
        ", \"messages\": " + join(member.sent_messages) +
        ", \"replays\": " + std::to_string(member.replays) + "}\n";
    if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      fail("cannot write " + options_.report);
    }
  }
  close(fd);
}

void Rank::destroy_communicators() {
  for (size_t c = members_.size(); c-- > 0;) {
    for (cudaStream_t stream : members_[c].streams) REQUIRE(cudaStreamDestroy(stream));
    if (members_[c].comm != nullptr) REQUIRE(ncclCommDestroy(members_[c].comm));
  }
}

}  // namespace property
