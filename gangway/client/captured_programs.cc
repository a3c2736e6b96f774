// Implementation of captured_programs.h.
#include "gangway/client/captured_programs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gangway::client {

CapturedPrograms::Sent CapturedPrograms::Replace(Ops& run, Register when) {
  if (!run_.Read(run, limits_.run) || run_.program_nodes() < limits_.program_nodes_min)
    return Sent::kAsTheyCame;
  const std::string_view text = run_.key();
  const auto known = keys_.find(absl::string_view(text.data(), text.size()));
  if (known == keys_.end()) {
    if (text.size() > limits_.all_key_bytes) return Sent::kAsTheyCame;
    MakeRoom(text.size());
    Key& key = Add(text);
    if (when == Register::kFirstTime) RegisterProgram(key, run);
    return Sent::kAsTheyCame;
  }
  Key& key = known->second;
  used_.splice(used_.begin(), used_, key.used);
  if (key.state == State::kSeen) RegisterProgram(key, run);
  if (key.state != State::kAccepted) return Sent::kAsTheyCame;
  Ops sent;
  run_.MakeLaunch(*key.program, *sent.Add()->mutable_launch());
  run_.TakeRest(run, sent);
  run.Swap(&sent);
  return Sent::kByALaunch;
}

CapturedPrograms::Key& CapturedPrograms::Add(std::string_view text) {
  const auto added = keys_.try_emplace(std::string(text)).first;
  Key& key = added->second;
  used_.push_front(&added->first);
  key.used = used_.begin();
  key_bytes_ += text.size();
  return key;
}

// Of the run that was read, behind it.
void CapturedPrograms::RegisterProgram(Key& key, Ops& run) {
  key.state = State::kRegistering;
  const uint64_t program = new_program_();
  key.program = program;
  key.executables = run_.executables();
  registering_[program] = &key;
  wire::RegisterProgramOp& op = *run.Add()->mutable_register_program();
  op.set_program(program);
  op.mutable_definition()->set_name(absl::StrCat("captured/", program));
  CapturedRun::ToProgram(run_.key(), *op.mutable_definition());
}

void CapturedPrograms::MakeRoom(size_t bytes) {
  while (!used_.empty() &&
         (keys_.size() >= limits_.keys || key_bytes_ + bytes > limits_.all_key_bytes)) {
    const std::optional<uint64_t> program = Remove(keys_.find(*used_.back()));
    if (program) evicted_.push_back(*program);
  }
}

std::optional<uint64_t> CapturedPrograms::Remove(Keys::iterator key) {
  const std::optional<uint64_t> program = key->second.program;
  if (program) registering_.erase(*program);
  used_.erase(key->second.used);
  key_bytes_ -= key->first.size();
  keys_.erase(key);
  return program;
}

void CapturedPrograms::OnRegistered(uint64_t program, bool is_accepted) {
  const auto registering = registering_.find(program);
  if (registering == registering_.end()) return;
  registering->second->state = is_accepted ? State::kAccepted : State::kRefused;
  registering_.erase(registering);
}

std::vector<uint64_t> CapturedPrograms::Forget(
    const google::protobuf::RepeatedField<uint64_t>& executables) {
  std::vector<uint64_t> programs;
  for (auto key = keys_.begin(); key != keys_.end();) {
    const auto current = key++;
    const bool calls_one = std::ranges::any_of(current->second.executables, [&](uint64_t called) {
      return std::ranges::find(executables, called) != executables.end();
    });
    if (calls_one) programs.push_back(*Remove(current));  // only programs have executables
  }
  return programs;
}

}  // namespace gangway::client
