#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "verify/clock.h"
#include "verify/mpi_exchange.h"
#include "verify/mpi_session.h"
#include "verify/rank_runner.h"
#include "verify/transports.h"
#include "verify/words.h"

namespace spiritlevel {

bool HasMpi() { return true; }

MpiSession::MpiSession() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

namespace {

// How long a rank of a run that has failed may go on with what it is in.
constexpr TimeNs kGrace = 5'000'000'000;

constexpr int kExitOfLostJob = 70;

// A run's own, so that nothing of one run is taken for a message of the next.
class RunComm {
 public:
  RunComm() { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }
  ~RunComm() {
    if (!is_left_) MPI_Comm_free(&comm_);
  }
  RunComm(const RunComm&) = delete;
  RunComm& operator=(const RunComm&) = delete;
  operator MPI_Comm() const { return comm_; }

  // Of a run that has failed messages may still be on their way. MPI gives the number of a
  // communicator that was freed to the next one, which would get them.
  void LeaveToMpi() { is_left_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool is_left_ = false;
};

void RequireJob(const RunSetting& setting) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) throw InputError("MPI has not been begun", "run it under mpirun");
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != setting.num_indices()) {
    throw InputError(fmt::format("{} ranks, and {} MPI processes", setting.num_indices(), size),
                     fmt::format("run it under mpirun -np {}", setting.num_indices()));
  }
  if (setting.options.emulate_delays) {
    throw InputError("delays cannot be emulated between MPI processes",
                     "run ranks as threads or processes");
  }
  int* largest_tag = nullptr;
  int is_known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &is_known);
  const Program& program = setting.plan.program();
  const size_t tags = MpiExchange::NumTags(program);
  if (is_known == 0 || tags > static_cast<size_t>(*largest_tag)) {
    throw InputError(fmt::format("{} messages are more than this MPI can tell apart", tags),
                     "run fewer iterations at once");
  }
}

// What to add to this process's clock to have that of index 0: the middle of the shortest of many
// questions. Processes of one machine have one clock.
TimeNs ClockOffset(MPI_Comm comm, int index, int size) {
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  int size_here = 0;
  MPI_Comm_size(here, &size_here);
  MPI_Comm_free(&here);
  int smallest = 0;
  MPI_Allreduce(&size_here, &smallest, 1, MPI_INT, MPI_MIN, comm);
  if (smallest == size) return 0;
  constexpr int kQuestions = 200;
  TimeNs offset = 0;
  TimeNs shortest = std::numeric_limits<TimeNs>::max();
  for (int other = 1; other < size; ++other) {
    for (int i = 0; i < kQuestions; ++i) {
      TimeNs theirs = 0;
      if (index == 0) {
        MPI_Recv(&theirs, 1, MPI_INT64_T, other, 0, comm, MPI_STATUS_IGNORE);
        theirs = Now();
        MPI_Send(&theirs, 1, MPI_INT64_T, other, 0, comm);
      } else if (index == other) {
        const TimeNs asked = Now();
        MPI_Send(&asked, 1, MPI_INT64_T, 0, 0, comm);
        MPI_Recv(&theirs, 1, MPI_INT64_T, 0, 0, comm, MPI_STATUS_IGNORE);
        const TimeNs answered = Now();
        if (answered - asked >= shortest) continue;
        shortest = answered - asked;
        offset = theirs - (asked + shortest / 2);
      }
    }
  }
  return offset;
}

// All ranks end with the same failure, that which came first, or with none. Where not all come to
// say so, the job is ended.
MpiFailure Agree(MPI_Comm comm, const MpiFailure& own, int size) {
  std::vector<MpiFailure> all(static_cast<size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, comm, &request);
  const TimeNs since = Now();
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0 && own.is_set != 0 && Now() - since > kGrace) {
      std::fprintf(stderr, "%s\n", own.message);
      MPI_Abort(comm, kExitOfLostJob);
    }
    if (done == 0) ::usleep(50);
  }
  MpiFailure first;
  for (const MpiFailure& each : all) {
    if (each.is_set != 0 && (first.is_set == 0 || each.time < first.time)) first = each;
  }
  return first;
}

template <class T>
void GatherAtFirst(MPI_Comm comm, int index, int size, const T* own, size_t count,
                   std::vector<std::vector<T>>& all) {
  constexpr int kSizeTag = 1;
  constexpr int kDataTag = 2;
  const auto bytes_of = [](size_t n) { return static_cast<int>(n * sizeof(T)); };
  if (index != 0) {
    const auto n = static_cast<int64_t>(count);
    MPI_Send(&n, 1, MPI_INT64_T, 0, kSizeTag, comm);
    MPI_Send(own, bytes_of(count), MPI_BYTE, 0, kDataTag, comm);
    return;
  }
  all.resize(static_cast<size_t>(size));
  all[0].assign(own, own + count);
  for (int other = 1; other < size; ++other) {
    int64_t n = 0;
    MPI_Recv(&n, 1, MPI_INT64_T, other, kSizeTag, comm, MPI_STATUS_IGNORE);
    std::vector<T>& theirs = all[static_cast<size_t>(other)];
    theirs.resize(static_cast<size_t>(n));
    MPI_Recv(theirs.data(), bytes_of(theirs.size()), MPI_BYTE, other, kDataTag, comm,
             MPI_STATUS_IGNORE);
  }
}

// What did not happen stays zero.
void ShiftClock(Timeline& timeline, TimeNs offset) {
  const auto shift = [offset](TimeNs& time) {
    if (time != 0) time += offset;
  };
  const auto shift_all = [&](auto& nodes) {
    for (NodeTimes& times : nodes) {
      shift(times.start);
      shift(times.end);
      shift(times.ready);
    }
  };
  shift_all(timeline.nodes);
  shift_all(timeline.reductions);
  for (MessageTimes& times : timeline.messages) {
    shift(times.start);
    shift(times.arrival);
  }
}

// Puts together what each rank has seen of the run, on the clock of index 0.
class Merger {
 public:
  Merger(const RunSetting& setting, RunReport& report)
      : setting_(setting), program_(setting.plan.program()), report_(report) {
    report_.timelines.resize(static_cast<size_t>(setting.options.replicas));
    for (Timeline& timeline : report_.timelines) {
      timeline.nodes.assign(program_.nodes().size(), {});
      timeline.messages.assign(program_.messages().size(), {});
      timeline.reductions.assign(program_.reductions().size(), {});
    }
  }

  void AddNodes(int index, const std::vector<NodeTimes>& nodes) {
    Timeline& timeline = TimelineOf(index);
    const int rank = index % program_.num_ranks();
    std::copy(nodes.begin() + program_.rank_begin(rank), nodes.begin() + program_.rank_end(rank),
              timeline.nodes.begin() + program_.rank_begin(rank));
  }

  // A message starts when its send, or under rendezvous the later side, is there.
  void AddMessages(int index, const std::vector<MessageTimes>& messages) {
    Timeline& timeline = TimelineOf(index);
    for (size_t m = 0; m < messages.size(); ++m) {
      timeline.messages[m].start = std::max(timeline.messages[m].start, messages[m].start);
      timeline.messages[m].arrival = std::max(timeline.messages[m].arrival, messages[m].arrival);
    }
  }

  void AddReductions(int index, const std::vector<NodeTimes>& reductions) {
    Timeline& timeline = TimelineOf(index);
    for (size_t r = 0; r < reductions.size(); ++r) {
      if (program_.reductions()[r].rank == index % program_.num_ranks()) {
        timeline.reductions[r] = reductions[r];
      }
    }
  }

  // A collective starts when its last member joins, and has the data of all then.
  void AlignCollectives() {
    for (int32_t c = 0; c < static_cast<int32_t>(program_.collectives().size()); ++c) {
      if (setting_.plan.spans_replicas(c)) {
        Align(c, 0, setting_.options.replicas);
      } else {
        for (int r = 0; r < setting_.options.replicas; ++r) Align(c, r, r + 1);
      }
    }
  }

  void CountFrom(TimeNs origin) {
    for (Timeline& timeline : report_.timelines) ShiftClock(timeline, -origin);
  }

 private:
  Timeline& TimelineOf(int index) {
    return report_.timelines[static_cast<size_t>(index / program_.num_ranks())];
  }

  NodeTimes& TimesOf(int replica, NodeId member) {
    Timeline& timeline = report_.timelines[static_cast<size_t>(replica)];
    return program_.is_reduction(member)
               ? timeline.reductions[static_cast<size_t>(member - program_.reduction_node(0))]
               : timeline.nodes[static_cast<size_t>(member)];
  }

  void Align(int32_t collective, int first_replica, int end_replica) {
    const std::vector<NodeId>& members = program_.collectives()[collective].members;
    TimeNs start = 0;
    for (int r = first_replica; r < end_replica; ++r) {
      for (const NodeId member : members) start = std::max(start, TimesOf(r, member).start);
    }
    for (int r = first_replica; r < end_replica; ++r) {
      for (const NodeId member : members) {
        NodeTimes& times = TimesOf(r, member);
        times.start = times.end = start;
        if (!program_.is_reduction(member)) times.ready = start;
      }
    }
  }

  const RunSetting& setting_;
  const Program& program_;
  RunReport& report_;
};

Failure InFull(const RunSetting& setting, const MpiFailure& record) {
  const int ranks = setting.plan.program().num_ranks();
  Failure failure{.kind = static_cast<FailureKind>(record.kind),
                  .rank = static_cast<int>(record.index) % ranks,
                  .replica = static_cast<int>(record.index) / ranks,
                  .node = static_cast<NodeId>(record.node),
                  .message = record.message};
  if (record.peer != kNone) failure.peer = static_cast<int>(record.peer) % ranks;
  if (failure.node != kNone) failure.op = NameOf(setting.plan, setting.routes, failure.node);
  return failure;
}

// At index 0: the timelines and results of all.
void GatherReport(const RunSetting& setting, MPI_Comm comm, int index, TimeNs origin,
                  MpiExchange& exchange, RunReport& report) {
  const int size = setting.num_indices();
  const Timeline& own = exchange.timeline();
  std::vector<std::vector<NodeTimes>> nodes;
  std::vector<std::vector<MessageTimes>> messages;
  std::vector<std::vector<NodeTimes>> reductions;
  std::vector<std::vector<std::byte>> results;
  GatherAtFirst(comm, index, size, own.nodes.data(), own.nodes.size(), nodes);
  GatherAtFirst(comm, index, size, own.messages.data(), own.messages.size(), messages);
  GatherAtFirst(comm, index, size, own.reductions.data(), own.reductions.size(), reductions);
  GatherAtFirst(comm, index, size, exchange.result().bytes().data(), exchange.result().size(),
                results);
  if (index != 0) return;
  Merger merger(setting, report);
  for (int other = 0; other < size; ++other) {
    const auto at = static_cast<size_t>(other);
    merger.AddNodes(other, nodes[at]);
    merger.AddMessages(other, messages[at]);
    merger.AddReductions(other, reductions[at]);
    report.results.push_back(Payload::CopyOf(results[at]));
  }
  if (!report.failure) merger.AlignCollectives();
  merger.CountFrom(origin);
}

}  // namespace

RunReport RunMpi(const RunSetting& setting) {
  RequireJob(setting);
  RunComm comm;
  const RunComm aside;  // for what is said beside the run's messages
  const int size = setting.num_indices();
  const int ranks = setting.plan.program().num_ranks();
  int index = 0;
  MPI_Comm_rank(comm, &index);
  const TimeNs offset = ClockOffset(aside, index, size);
  MpiExchange exchange(setting, comm, index, offset);
  RankRunner({.plan = setting.plan,
              .routes = setting.routes,
              .make_work = setting.make_work,
              .options = setting.options,
              .rank = index % ranks,
              .replica = index / ranks},
             exchange)
      .Run();

  RunReport report;
  const MpiFailure failure = Agree(aside, exchange.failure(), size);
  if (failure.is_set != 0) {
    report.failure = InFull(setting, failure);
    comm.LeaveToMpi();
  }
  if (report.failure && setting.options.on_failure) setting.options.on_failure(*report.failure);
  const NodeId last = exchange.last_ended();
  report.last_ended.resize(static_cast<size_t>(size));
  MPI_Allgather(&last, 1, MPI_INT32_T, report.last_ended.data(), 1, MPI_INT32_T, aside);
  const TimeNs began =
      exchange.began() == 0 ? std::numeric_limits<TimeNs>::max() : exchange.began() + offset;
  TimeNs origin = 0;
  MPI_Allreduce(&began, &origin, 1, MPI_INT64_T, MPI_MIN, aside);
  ShiftClock(exchange.timeline(), offset);
  GatherReport(setting, aside, index, origin, exchange, report);
  return report;
}

}  // namespace spiritlevel
