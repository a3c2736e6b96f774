// A session's turns, questions and checks; its operations are in session_ops.cc.
#include "gangway/simulation/session.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/program/passes.h"
#include "gangway/wire/failure.h"

namespace gangway::simulation {
namespace {

// Codes that say that something around an operation broke. Any other failure of a correct operation is a fault.
bool IsFromAround(absl::StatusCode code) {
  return code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kCancelled ||
         code == absl::StatusCode::kResourceExhausted;
}

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The sum of all shards, as words of 32 bits.
std::string SumOf(const std::vector<std::string>& shards) {
  std::string sum = shards[0];
  for (size_t at = 0; at + sizeof(uint32_t) <= sum.size(); at += sizeof(uint32_t)) {
    uint32_t total = 0;
    for (const std::string& shard : shards) {
      uint32_t word;
      std::memcpy(&word, shard.data() + at, sizeof(word));
      total += word;
    }
    std::memcpy(sum.data() + at, &total, sizeof(total));
  }
  return sum;
}

// By output: the shards.
std::vector<std::vector<std::string>> EvaluateGang(
    const device::SimProgram& program, const std::vector<const program::Array*>& inputs) {
  std::vector<std::vector<std::string>> values;
  for (const program::Array* input : inputs) values.push_back(input->shards);
  for (int round = 0; round < program.rounds; ++round) {
    for (const device::SimCollective& each : program.collectives) {
      std::vector<std::string>& shards = values[each.input];
      if (each.kind == device::SimCollective::Kind::kAllReduce) {
        shards.assign(shards.size(), SumOf(shards));
      } else {
        const auto shift = each.shift % static_cast<int>(shards.size());
        std::rotate(shards.begin(), shards.end() - shift, shards.end());
      }
    }
  }
  return values;
}

}  // namespace

Session::Session(SessionPlan plan, Client* client, Violations* violations)
    : plan_(std::move(plan)), client_(client), violations_(violations), random_(plan_.seed) {
  client_->OnLost([lost = lost_](const absl::Status&) { *lost = true; });
}

Session::~Session() = default;

void Session::Run() {
  client_->EndLook();  // the operations look for theirs
  for (int done = 0; done < plan_.ops && !*lost_; ++done) {
    if (done == plan_.leaves_after) return Leave();
    OneOp();
    if (random_.Percent(40)) {
      Answer<bool>().WaitFor(std::chrono::milliseconds(
          Below(static_cast<uint64_t>(plan_.think_max.count()) / 1000 + 1)));
    }
  }
}

std::shared_ptr<Session::Question> Session::Ask(std::string what, Allowed allowed) {
  auto question = std::make_shared<Question>();
  question->what = std::move(what);
  question->allowed = allowed;
  question->asked = Clock::now();
  question->stopped = plan_.stopped_for();
  return question;
}

StatusCallback Session::Answered(std::shared_ptr<Question> question) {
  return [question = std::move(question)](absl::Status status) {
    MutexLock lock(question->mutex);
    question->done = true;
    question->status = std::move(status);
    question->at = Clock::now();
    question->answered.NotifyAll();
  };
}

// Only that it comes counts: what it says is asked for by awaits. It may be looked for together with every other one.
StatusCallback Session::ToldEnd(const std::string& what) {
  if (!client_->reports_ends()) return nullptr;
  const bool looks = looks_random_.Percent(20);
  if (looks) client_->BeginLook();
  others_.push_back(Ask("the end of " + what, Allowed::kEither));
  ++counts_.told;
  return [client = client_, looks, told = Answered(others_.back())](const absl::Status&) {
    if (looks) client->EndLook();
    told(absl::OkStatus());
  };
}

void Session::MayLookFor(OperationId operation) {
  if (looks_random_.Percent(20)) client_->LookFor(operation);
}

void Session::Violate(const std::string& invariant, const std::string& what) {
  violations_->Add(invariant, absl::StrCat(plan_.name, ": ", what));
}

void Session::AskAbout(Question& question, ArrayHandle handle,
                       const std::vector<uint32_t>& shards) const {
  const Array& array = arrays_.at(handle);
  if (shards.size() == array.devices.size()) question.array = handle;
  for (uint32_t shard : shards) {
    question.devices.push_back(array.devices[shard]);
  }
  question.known = array.known;
  question.blame = BlameOf(array).records;
}

// What was good and was on a killed worker is lost; what was not there is not.
Session::Allowed Session::AfterKills(const Question& question, Clock::time_point answered) const {
  if (!plan_.kills_of || !question.known || question.allowed != Allowed::kEither)
    return question.allowed;
  for (uint32_t device : question.devices) {
    for (Clock::time_point kill : plan_.kills_of(device)) {
      if (kill > question.known->to && kill + kLossKnown < question.asked) return Allowed::kBad;
    }
  }
  for (uint32_t device : question.devices) {
    for (Clock::time_point kill : plan_.kills_of(device)) {
      if (kill + kLossKnown >= question.known->from && kill <= answered) return Allowed::kEither;
    }
  }
  return Allowed::kGood;
}

bool Session::Check(Question& question) {
  if (question.checked) return question.good;
  question.checked = true;
  GiveUp();
  question.good = CheckOnce(question);
  auto array = arrays_.find(question.array);
  if (question.good && array != arrays_.end() && !array->second.known) {
    MutexLock lock(question.mutex);
    array->second.known = {question.asked, question.at};
  }
  return question.good;
}

Clock::time_point Session::DeadlineOf(const Question& question) const {
  return question.asked + plan_.answer_max + *plan_.slow + (plan_.stopped_for() - question.stopped);
}

bool Session::CheckOnce(Question& question) {
  MutexLock lock(question.mutex);
  bool answered = false;
  while (!answered && Clock::now() < DeadlineOf(question)) {
    answered =
        question.answered.WaitUntil(question.mutex, DeadlineOf(question),
                                    [&question]() GANGWAY_NO_ANALYSIS { return question.done; });
  }
  const auto deadline = DeadlineOf(question);
  const auto limit_s = std::chrono::duration_cast<std::chrono::seconds>(plan_.answer_max).count();
  if (!question.done || question.at > deadline) {
    Violate("answers", absl::StrCat(question.what, " was not answered within ", limit_s, " s"));
    return false;
  }
  ++counts_.answered;
  counts_.longest =
      std::max<std::chrono::nanoseconds>(counts_.longest, question.at - question.asked);
  const absl::Status status = question.status;
  const Allowed allowed = AfterKills(question, question.at);
  if (status.ok()) {
    if (allowed == Allowed::kBad)
      Violate("answers", absl::StrCat(question.what, " succeeded, but must fail"));
    return true;
  }
  const wire::Failure failure = wire::ToFailure(status);
  ++counts_.failed[failure.code()];
  if (failure.message().empty()) Violate("ER-1", question.what + " failed without a reason");
  if (!question.blame.empty()) {
    CheckBlame(question, failure, question.at);
    return false;
  }
  if (plan_.kills_of) CheckLoss(question, failure, question.at);
  if (allowed == Allowed::kGood) {
    Violate("answers", absl::StrCat(question.what, " failed although nothing went wrong: ",
                                    wire::ToText(failure)));
  }
  if (allowed != Allowed::kBad && !IsFromAround(status.code())) {
    Violate("ER-1",
            absl::StrCat(question.what, " failed as if it were wrong: ", wire::ToText(failure)));
  }
  return false;
}

void Session::CheckSoon(const Question& question, const wire::Failure& failure,
                        Clock::time_point answered, Clock::time_point known) {
  const std::chrono::nanoseconds took =
      answered - std::max(question.asked, known) - std::chrono::nanoseconds(*plan_.slow);
  if (plan_.slow->count() == 0) counts_.longest_failure = std::max(counts_.longest_failure, took);
  if (plan_.failure_max.count() == 0 || took <= plan_.failure_max) return;
  const auto took_ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
  Violate("ER-2", absl::StrCat(question.what, " was answered ", took_ms,
                               " ms after its failure was known: ", wire::ToText(failure)));
}

// What a killed worker took with it is lost at once: after the last kill before the answer, since the array may depend
// on any of the killed workers. One question for several arrays also waits for the others.
void Session::CheckLoss(const Question& question, const wire::Failure& failure,
                        Clock::time_point answered) {
  if (failure.code() != static_cast<int>(absl::StatusCode::kDataLoss) || question.devices.empty())
    return;
  Clock::time_point known;
  for (uint32_t device = 0; device < plan_.device_count; ++device) {
    for (Clock::time_point kill : plan_.kills_of(device)) {
      if (kill <= answered) known = std::max(known, kill);
    }
  }
  CheckSoon(question, failure, answered, known);
}

// The root cause reaches every result (ER-1), and soon.
void Session::CheckBlame(const Question& question, const wire::Failure& failure,
                         Clock::time_point answered) {
  const std::string& message = failure.message();
  const auto named = std::ranges::find_if(question.blame, [&](const std::string& record) {
    return absl::StrContains(message, record);
  });
  if (named == question.blame.end()) {
    if (plan_.may_fail && IsFromAround(static_cast<absl::StatusCode>(failure.code()))) return;
    return Violate("ER-1", absl::StrCat(question.what, " does not name its cause, '",
                                        *question.blame.begin(), "': ", wire::ToText(failure)));
  }
  ++counts_.blamed;
  const std::string after = message.substr(message.find(*named) + named->size());
  int64_t micros = 0;
  if (!absl::SimpleAtoi(after.substr(0, after.find(' ')), &micros))
    return Violate("ER-1", absl::StrCat(question.what, " has a cause without its time: ", message));
  const Clock::time_point known{std::chrono::microseconds(micros)};
  CheckSoon(question, failure, answered, known);
}

Session::Blame Session::BlameOf(const Array& array) const {
  Blame blame{.records = array.sources};
  for (uint32_t i = 0; i < array.places.size(); ++i) {
    const auto [storage, shard] = array.places[i];
    auto found = blame_.find(storage);
    if (found == blame_.end()) continue;
    blame.Add({.records = found->second.records});
    if (found->second.shards.contains(shard)) blame.shards.insert(i);
  }
  return blame;
}

// One bad shard spoils all that its node made.
bool Session::IsSpoiled(const Array& array) const {
  return std::ranges::any_of(array.places, [this](const Place& place) {
    auto found = blame_.find(place.first);
    return found != blame_.end() && !found->second.shards.empty();
  });
}

void Session::Finish() {
  GiveUp();
  for (const auto& question : others_) Check(*question);
  if (plan_.kills_of) AwaitWhatWasGood();
  const auto evaluate = [this](const program::Call& call,
                               const std::vector<const program::Array*>& inputs) {
    return Evaluate(call, inputs);
  };
  const program::Program recorded = program::ArgumentsFirst(program_);
  auto expected = program::Interpret(recorded, arguments_, evaluate);
  if (!expected.ok())
    Violate("DF-3", absl::StrCat("the reference cannot be evaluated: ",
                                 expected.status().ToString(), "\n", program::Print(recorded)));
  for (const auto& fetch : fetches_) {
    if (!Check(*fetch) || !expected.ok()) continue;
    ++counts_.compared;
    if (fetch->bytes != (*expected)[fetch->result].shards[fetch->shard])
      Violate("DF-3", absl::StrCat(fetch->what, " has bytes that differ from the reference"));
  }
  std::vector<ArrayHandle> all(consumed_.begin(), consumed_.end());
  for (const auto& [handle, array] : arrays_) all.push_back(handle);
  all.insert(all.end(), partly_dropped_.begin(), partly_dropped_.end());
  client_->Drop(all);
  std::vector<ProgramHandle> programs;
  for (const DrawnProgram& drawn : programs_) programs.push_back(drawn.handle);
  client().DropPrograms(programs);
  std::vector<ExecutableHandle> executables;
  for (const auto& [key, executable] : executables_) executables.push_back(executable.handle);
  client_->DropExecutables(executables);
}

// --- What programs compute ---

// A chain of collectives, or a loop with one.
std::string Session::GangText(uint64_t program, const Devices& devices) const {
  Random random(plan_.seed ^ Mix(program));
  const uint64_t inputs = random.Between(1, 2);
  const bool donates = random.Percent(50);
  const uint64_t cost_us = random.Below(static_cast<uint64_t>(plan_.cost_max_us) + 1);
  const uint64_t rounds = random.Percent(50) ? 1 : random.Between(2, 4);
  const uint64_t collectives = random.Between(1, 3);
  std::string text = absl::StrCat("sim 1\nname g", program, ".", plan_.name, "\npartitions ",
                                  devices.size(), "\ncost_us ", cost_us, "\nrounds ", rounds, "\n");
  if (plan_.plants && random.Percent(10)) {
    const uint64_t slow_max_us = random.Percent(10) ? 3'000'000 : 100'000;
    absl::StrAppend(&text, "slow ", random.Pick(devices), " ", random.Between(1, slow_max_us),
                    "\n");
  }
  if (IsFailing(program)) {
    absl::StrAppend(&text, "fails ", random.Pick(devices), " ",
                    random.Below(rounds * collectives + 1), "\n");
  }
  for (uint64_t i = collectives; i > 0; --i) {
    const uint64_t input = random.Below(inputs);
    if (random.Percent(60)) {
      absl::StrAppend(&text, "all_reduce ", input, "\n");
    } else {
      absl::StrAppend(&text, "permute ", input, " ", random.Between(1, 3), "\n");
    }
  }
  for (uint64_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&text, "input 11 ", plan_.elements, "\noutput 11 ", plan_.elements,
                    i == 0 && donates ? " donates 0\n" : "\n");
  }
  return text;
}

// What device::RunCollectives says of it, up to the time.
std::string Session::FailureOf(uint64_t program, const Devices& devices) const {
  const auto parsed = device::ParseSimProgram(ProgramText(program, devices));
  return absl::StrCat("sim program '", parsed->name, "' failed on device ", parsed->failing_device,
                      ", at ");
}

std::string Session::ProgramText(uint64_t program, const Devices& devices) const {
  if (program >= kPrograms) return GangText(program, devices);
  Random random(plan_.seed ^ Mix(program));
  const uint64_t inputs = random.Between(1, 2), outputs = random.Between(1, 2);
  const bool collective = random.Percent(50), donates = random.Percent(50);
  const uint64_t cost_us = random.Below(static_cast<uint64_t>(plan_.cost_max_us) + 1);
  std::string text =
      absl::StrCat("sim 1\nname p", program, "\npartitions ", devices.size(), "\ncost_us ", cost_us,
                   "\ntemp_bytes ", random.Below(3) * 8, "\n");
  if (collective && devices.size() > 1) absl::StrAppend(&text, "collective\n");
  for (uint64_t i = 0; i < inputs; ++i) absl::StrAppend(&text, "input 11 ", plan_.elements, "\n");
  for (uint64_t i = 0; i < outputs; ++i) {
    absl::StrAppend(&text, "output 11 ", plan_.elements, i == 0 && donates ? " donates 0" : "",
                    "\n");
  }
  return text;
}

// `call.function` is "p/NUMBER".
absl::StatusOr<std::vector<std::vector<std::string>>> Session::Evaluate(
    const program::Call& call, const std::vector<const program::Array*>& inputs) const {
  std::vector<std::vector<std::string>> outputs(call.output_count);
  const uint64_t number = std::stoul(call.function.substr(call.function.find('/') + 1));
  auto program = device::ParseSimProgram(ProgramText(number, call.devices));
  if (!program.ok()) return program.status();
  if (!program->collectives.empty()) return EvaluateGang(*program, inputs);
  std::vector<uint64_t> digests;
  for (size_t i = 0; i < call.devices.size(); ++i) {
    std::vector<std::span<const std::byte>> bytes;
    for (const program::Array* input : inputs) bytes.push_back(Bytes(input->shards.at(i)));
    digests.push_back(device::DigestInputs(*program, bytes));
  }
  const uint64_t together = device::CombineDigests(digests);
  for (size_t r = 0; r < outputs.size(); ++r) {
    for (size_t i = 0; i < call.devices.size(); ++i) {
      const auto output = device::SimOutput(*program, static_cast<int>(r), static_cast<int>(i),
                                            program->collective ? together : digests[i]);
      outputs[r].emplace_back(reinterpret_cast<const char*>(output.data()), output.size());
    }
  }
  return outputs;
}

}  // namespace gangway::simulation
