// Two clients for tests/test_hostile_programs.py, on the client library's public headers.
//
//   hostile_client programs ADDRESS TOKEN SECRET
//   hostile_client victim ADDRESS TOKEN SECRET
//
// `programs` reads a job per line of stdin, as JSON, compiles its program and runs it once, and prints what became of
// it as one line of JSON. It asks for nothing that a client may not ask for; what is hostile is in the programs.
// Results that hold SECRET show another session's memory.
//
// `victim` holds arrays that consist of SECRET on every device, and computes x + 1 there, until its stdin closes. It
// prints a line when an answer is late or wrong, when an array has changed, or when anything fails, then prepares its
// arrays again; and a summary at the end. Times are of the steady clock, in seconds.
//
// Threading: one thread, which waits for callbacks of the client's loop. Failure: each wait has a deadline, after which
// the job, or the step, counts as late; a lost session is opened again, for which the library waits up to 30 s.
#include <gangway/connect.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using gangway::ArrayHandle;
using gangway::ArraySpec;
using gangway::Client;
using gangway::ExecutableHandle;
using gangway::ExecutableInfo;
using gangway::OperationId;
using gangway::Result;
using gangway::Status;
using gangway::StatusCode;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kVictimLimit{30};
constexpr milliseconds kLate{1000};  // what the design promises to other sessions
constexpr milliseconds kVictimPause{10};
constexpr uint64_t kArgumentBytesMax = uint64_t{64} << 20;  // of a job, over its devices
constexpr uint64_t kFetchBytesMax = uint64_t{1} << 20;      // of each shard of a result
constexpr int32_t kU8 = 6, kF32 = 11;                       // XLA PrimitiveType
constexpr size_t kHeldBytes = size_t{64} << 10, kValues = 256;

double Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

void Print(const json& line) {
  std::cout << line.dump(-1, ' ', true, json::error_handler_t::replace) << std::endl;
}

// What a callback delivers, which may come after the wait for it has ended.
template <typename T>
class Answer {
 public:
  std::function<void(T)> Callback() {
    return [promise = promise_](T value) { promise->set_value(std::move(value)); };
  }
  std::optional<T> Wait(milliseconds limit) {
    std::future<T> future = promise_->get_future();
    if (future.wait_for(limit) != std::future_status::ready) return std::nullopt;
    return future.get();
  }

 private:
  std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
};

Status Late(std::string_view what) {
  return Status(StatusCode::kDeadlineExceeded, "the test's limit passed: " + std::string(what));
}

// A session that is opened again when it was lost.
class Session {
 public:
  Session(std::string address, std::string token, std::string name)
      : address_(std::move(address)), token_(std::move(token)), name_(std::move(name)) {}

  Result<Client*> Open() {
    if (client_ && !*lost_) return client_.get();
    client_.reset();
    auto opened =
        gangway::ConnectClient({.address = address_, .token = token_, .tls = "", .name = name_});
    if (!opened.ok()) return opened.status();
    client_ = *std::move(opened);
    lost_ = std::make_shared<std::atomic<bool>>(false);
    client_->OnLost([lost = lost_](const Status&) { *lost = true; });
    return client_.get();
  }

  void End() { client_.reset(); }

 private:
  const std::string address_, token_, name_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<std::atomic<bool>> lost_;
};

Result<std::string> FetchShard(Client& client, ArrayHandle array, uint32_t shard, uint64_t size,
                               milliseconds limit) {
  auto bytes = std::make_shared<std::string>(size, '\0');
  Answer<Status> done;
  client.Fetch(array, {shard},
               {.on_data =
                    [bytes](size_t, uint64_t offset, std::string_view data) {
                      if (offset > bytes->size() || data.size() > bytes->size() - offset) return;
                      data.copy(bytes->data() + offset, data.size());
                    },
                .on_place = nullptr,
                .on_done = done.Callback()});
  client.SendNow();
  const std::optional<Status> status = done.Wait(limit);
  if (!status) return Late("fetch");
  if (!status->ok()) return *status;
  return *bytes;
}

void PushTo(Client& client, ArrayHandle array, const ArraySpec& spec, const std::string& shard) {
  const OperationId upload = client.Upload(array, spec);
  for (uint32_t i = 0; i < spec.devices.size(); ++i) {
    const auto bytes = std::make_shared<std::string>(shard);
    client.Push(upload, i, *bytes, [bytes] {});
  }
}

Result<std::shared_ptr<const ExecutableInfo>> CompileFor(Client& client, ExecutableHandle& handle,
                                                         std::string program, std::string format,
                                                         std::string options,
                                                         std::vector<uint32_t> devices,
                                                         milliseconds limit) {
  Answer<Result<std::shared_ptr<const ExecutableInfo>>> compiled;
  handle = client.Compile(std::move(program), std::move(format), std::move(options),
                          std::move(devices), compiled.Callback());
  client.SendNow();
  auto info = compiled.Wait(limit);
  if (!info) return Late("compile");
  return *std::move(info);
}

// ---- programs

struct Job {
  std::string name, program, format, options;
  std::vector<uint32_t> devices;
  bool run = true;
  bool alone = false;  // in a session of its own
  std::string
      arguments;  // "right"; "same": one array for all parameters; "short": of half of the elements
  int fill = -1;  // each byte of the arguments; -1: small values of the parameter's type
  milliseconds limit{0};
};

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

Job ParseJob(const std::string& line) {
  const json fields = json::parse(line);
  std::ifstream file(fields.at("path").get<std::string>(), std::ios::binary);
  return {.name = fields.at("name"),
          .program = std::string(std::istreambuf_iterator<char>(file), {}),
          .format = fields.at("format"),
          .options = FromHex(fields.at("options")),
          .devices = fields.at("devices"),
          .run = fields.at("run"),
          .alone = fields.at("alone"),
          .arguments = fields.at("arguments"),
          .fill = fields.at("fill"),
          .limit = milliseconds(fields.at("limit_ms").get<int64_t>())};
}

template <typename T>
std::string SmallValues(size_t bytes) {
  std::string made(bytes, '\0');
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    const auto value = static_cast<T>(i % 5);
    std::memcpy(made.data() + i * sizeof(T), &value, sizeof(T));
  }
  return made;
}

std::string ArgumentBytes(int32_t element_type, uint64_t size, int fill) {
  if (fill >= 0) return std::string(size, static_cast<char>(fill));
  switch (element_type) {
    case 1:  // PRED
      return std::string(size, '\1');
    case 4:
    case 8:
      return SmallValues<int32_t>(size);
    case 5:
    case 9:
      return SmallValues<int64_t>(size);
    case kF32:
      return SmallValues<float>(size);
    case 12:
      return SmallValues<double>(size);
    default:
      return SmallValues<uint8_t>(size);
  }
}

// What became of a job: the last stage that it reached, and how that ended.
struct Outcome {
  std::string stage;  // "compile", "run", "fetch"
  Status status;
  bool ran = false, leaked = false;
};

// Uploads an argument per parameter of the executable; empty if they are too large for the test.
std::optional<std::vector<ArrayHandle>> UploadArguments(Client& client, const ExecutableInfo& info,
                                                        const Job& job) {
  uint64_t total = 0;
  for (const auto& parameter : info.parameters) {
    if (parameter.shard_bytes > kArgumentBytesMax) return std::nullopt;
    total += parameter.shard_bytes * job.devices.size();
  }
  if (total > kArgumentBytesMax) return std::nullopt;
  std::vector<ArrayHandle> arguments;
  for (auto parameter : info.parameters) {
    if (job.arguments == "same" && !arguments.empty()) {
      arguments.push_back(arguments.front());
      continue;
    }
    if (job.arguments == "short" && !parameter.shard_dims.empty()) {
      parameter.shard_dims.front() /= 2;
      parameter.shard_bytes /= 2;
    }
    arguments.push_back(client.NewArrayHandle());
    PushTo(client, arguments.back(),
           {.element_type = parameter.element_type,
            .shard_dims = parameter.shard_dims,
            .devices = job.devices,
            .memory_kind = "",
            .shard_bytes = parameter.shard_bytes},
           ArgumentBytes(parameter.element_type, parameter.shard_bytes, job.fill));
  }
  return arguments;
}

void FetchResults(Client& client, const ExecutableInfo& info, const Job& job,
                  std::string_view secret, const std::vector<ArrayHandle>& results,
                  Outcome& outcome) {
  outcome.stage = "fetch";
  for (size_t i = 0; i < results.size(); ++i) {
    const uint64_t size = info.results[i].shard_bytes;
    if (size > kFetchBytesMax) continue;
    for (uint32_t shard = 0; shard < job.devices.size(); ++shard) {
      auto bytes = FetchShard(client, results[i], shard, size, job.limit);
      if (!bytes.ok()) {
        outcome.status = bytes.status();
        return;
      }
      outcome.leaked |= bytes->find(secret) != std::string::npos;
    }
  }
}

void Run(Client& client, const ExecutableInfo& info, ExecutableHandle executable, const Job& job,
         std::string_view secret, Outcome& outcome) {
  outcome.stage = "run";
  const auto arguments = UploadArguments(client, info, job);
  if (!arguments) return;
  std::vector<ArrayHandle> results;
  for (size_t i = 0; i < info.results.size(); ++i) results.push_back(client.NewArrayHandle());
  client.Call(executable, *arguments, results);
  Answer<Status> done;
  client.Await(results, done.Callback());
  client.SendNow();
  outcome.ran = true;
  outcome.status = done.Wait(job.limit).value_or(Late("run"));
  if (outcome.status.ok()) FetchResults(client, info, job, secret, results, outcome);
  client.Drop(*arguments);
  client.Drop(results);
}

Outcome Do(Client& client, const Job& job, std::string_view secret) {
  Outcome outcome{.stage = "compile", .status = Status()};
  ExecutableHandle executable{};
  auto info =
      CompileFor(client, executable, job.program, job.format, job.options, job.devices, job.limit);
  if (!info.ok()) {
    outcome.status = info.status();
  } else if (!(*info)->asks.empty()) {
    outcome.stage = "asks";
  } else if (job.run) {
    Run(client, **info, executable, job, secret, outcome);
  }
  client.DropExecutables(std::array{executable});
  client.SendNow();
  return outcome;
}

int Programs(Session& session, std::string_view secret) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Job job = ParseJob(line);
    if (job.alone) session.End();
    const Clock::time_point begin = Clock::now();
    auto client = session.Open();
    const Outcome outcome = client.ok() ? Do(**client, job, secret)
                                        : Outcome{.stage = "connect", .status = client.status()};
    const Clock::time_point end = Clock::now();
    if (job.alone) session.End();
    Print({{"name", job.name},
           {"stage", outcome.stage},
           {"code", static_cast<int>(outcome.status.code())},
           {"message", outcome.status.message()},
           {"ran", outcome.ran},
           {"leaked", outcome.leaked},
           {"begin", Seconds(begin)},
           {"end", Seconds(end)}});
  }
  return 0;
}

// ---- victim

std::string AddsOne() {
  const std::string type = "tensor<" + std::to_string(kValues) + "xf32>";
  return "module @adds_one { func.func public @main(%x: " + type + ") -> " + type +
         " {\n %c = stablehlo.constant dense<1.0> : " + type +
         "\n %y = stablehlo.add %x, %c : " + type + "\n return %y : " + type + "\n } }";
}

class Victim {
 public:
  Victim(Session& session, std::string_view secret) : session_(session) {
    while (held_.size() < kHeldBytes) held_ += secret;
    held_.resize(kHeldBytes);
    for (size_t i = 0; i < kValues; ++i) {
      values_[i] = static_cast<float>(i);
      expected_[i] = static_cast<float>(i + 1);
    }
  }

  int Live() {
    bool prepared = Prepared();
    Print({{"event", "ready"}, {"at", Seconds(Clock::now())}, {"prepared", prepared}});
    for (size_t step = 0; !Ended(); ++step) {
      if (!prepared) {
        prepared = Prepared();
        continue;
      }
      const Device& device = devices_[step % devices_.size()];
      const Status status = Check(device);
      if (!status.ok()) Tell("failed", {{"message", status.message()}, {"device", device.id}});
      prepared = status.ok();
    }
    Print({{"event", "end"}, {"steps", steps_}, {"slowest_ms", slowest_.count()}});
    return 0;
  }

 private:
  struct Device {
    uint32_t id;
    ExecutableHandle adds_one;
    ArrayHandle held, x;
  };

  static bool Ended() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return poll(&input, 1, static_cast<int>(kVictimPause.count())) > 0;
  }

  static void Tell(std::string_view event, json fields) {
    fields["event"] = event;
    fields["at"] = Seconds(Clock::now());
    Print(fields);
  }

  bool Prepared() {
    const Status status = Prepare();
    if (!status.ok()) Tell("unprepared", {{"message", status.message()}});
    return status.ok();
  }

  Status Prepare() {
    auto client = session_.Open();
    if (!client.ok()) return client.status();
    client_ = *client;
    devices_.clear();
    for (const auto& info : client_->cluster().devices) {
      Device device{.id = info.id, .adds_one = {}, .held = {}, .x = {}};
      auto compiled =
          CompileFor(*client_, device.adds_one, AddsOne(), "mlir", "", {info.id}, kVictimLimit);
      if (!compiled.ok()) return compiled.status();
      device.held = Put(info.id, kU8, kHeldBytes, held_);
      device.x = Put(info.id, kF32, kValues,
                     std::string(reinterpret_cast<const char*>(values_.data()), sizeof values_));
      devices_.push_back(device);
      // The first call loads the executable, which the promise about answers does not cover.
      if (auto first = Add(device); !first.ok()) return first.status();
    }
    return Status();
  }

  ArrayHandle Put(uint32_t device, int32_t type, size_t count, const std::string& bytes) {
    const ArrayHandle array = client_->NewArrayHandle();
    PushTo(*client_, array,
           {.element_type = type,
            .shard_dims = {static_cast<int64_t>(count)},
            .devices = {device},
            .memory_kind = "",
            .shard_bytes = bytes.size()},
           bytes);
    return array;
  }

  Result<std::string> Add(const Device& device) {
    const ArrayHandle y = client_->NewArrayHandle();
    client_->Call(device.adds_one, std::array{device.x}, std::array{y});
    auto bytes = FetchShard(*client_, y, 0, sizeof values_, kVictimLimit);
    client_->Drop(std::array{y});
    return bytes;
  }

  Status Check(const Device& device) {
    const Clock::time_point begin = Clock::now();
    auto sum = Add(device);
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    if (!sum.ok()) return sum.status();
    ++steps_;
    slowest_ = std::max(slowest_, took);
    if (took > kLate) Tell("late", {{"ms", took.count()}, {"device", device.id}});
    if (std::memcmp(sum->data(), expected_.data(), sizeof expected_) != 0) {
      Tell("wrong", {{"device", device.id}});
    }
    auto bytes = FetchShard(*client_, device.held, 0, kHeldBytes, kVictimLimit);
    if (!bytes.ok()) return bytes.status();
    if (*bytes != held_) {
      Tell("changed", {{"device", device.id}});
      return Status(StatusCode::kDataLoss, "an array has other bytes than those that were sent");
    }
    return Status();
  }

  Session& session_;
  Client* client_ = nullptr;
  std::string held_;
  std::array<float, kValues> values_, expected_;
  std::vector<Device> devices_;
  uint64_t steps_ = 0;
  milliseconds slowest_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: hostile_client programs|victim ADDRESS TOKEN SECRET\n";
    return 2;
  }
  const std::string mode = argv[1], secret = argv[4];
  Session session(argv[2], argv[3], mode);
  if (mode == "victim") return Victim(session, secret).Live();
  return Programs(session, secret);
}
