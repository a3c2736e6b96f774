// Implementation of failure.h.
#include "gangway/wire/failure.h"

#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/failure_record.h"
#include "gangway/base/shown_name.h"

namespace gangway::wire {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The context that was added to the status on its way (base/status.h) precedes the record's text.
void TakeContext(const absl::Status& status, Failure& failure) {
  const std::string message(status.message());
  const std::string text = ToText(failure);
  if (message.size() <= text.size() || !message.ends_with(text)) return;
  const std::string context = message.substr(0, message.size() - text.size());
  failure.set_message(ValidUtf8(absl::StrCat(context, failure.message())));
  Clip(failure);
}

}  // namespace

void ClipText(std::string& text, size_t bytes_max) {
  if (text.size() <= bytes_max) return;
  constexpr size_t kNoteMax = 48;
  size_t kept = bytes_max - kNoteMax;
  while (kept > 0 && IsContinuation(text[kept])) --kept;
  const size_t more = text.size() - kept;
  text.resize(kept);
  absl::StrAppend(&text, " ... (", more, " bytes left out)");
}

void Clip(Failure& failure) {
  // Reads first: to ask for a mutable text allocates it.
  if (failure.message().size() > kFailureTextMax)
    ClipText(*failure.mutable_message(), kFailureTextMax);
  if (failure.advice().size() > kFailureAdviceMax)
    ClipText(*failure.mutable_advice(), kFailureAdviceMax);
  if (!failure.program().empty()) failure.set_program(ShownName(failure.program(), kNameMax));
  if (!failure.source().empty()) failure.set_source(ShownName(failure.source(), kNameMax));
  if (!failure.worker().empty()) failure.set_worker(ShownName(failure.worker(), kNameMax));
  if (!failure.launched_program().empty())
    failure.set_launched_program(ShownName(failure.launched_program(), kNameMax));
}

FailureRef Share(Failure failure) { return std::make_shared<const Failure>(std::move(failure)); }

absl::Status ToStatus(const Failure& failure) {
  if (failure.code() == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(failure.code()), ToText(failure));
  status.SetPayload(kFailureRecord, absl::Cord(failure.SerializeAsString()));
  return status;
}

Failure ToFailure(const absl::Status& status) {
  Failure failure;
  if (status.ok()) return failure;
  if (auto payload = status.GetPayload(kFailureRecord)) {
    if (failure.ParseFromString(std::string(*payload)) && failure.code() != 0) {
      TakeContext(status, failure);
      return failure;
    }
    failure.Clear();
  }
  failure.set_code(static_cast<int>(status.code()));
  absl::string_view message = status.message();
  failure.set_message(ValidUtf8({message.data(), message.size()}));
  Clip(failure);
  return failure;
}

Failure MakeFailure(absl::StatusCode code, std::string_view message, std::string_view advice) {
  Failure failure;
  failure.set_code(static_cast<int>(code));
  failure.set_message(ValidUtf8(message));
  failure.set_advice(ValidUtf8(advice));
  Clip(failure);
  return failure;
}

ProgramLabelRef LabelOf(const std::string& name, const std::string& source) {
  return std::make_shared<const ProgramLabel>(
      ProgramLabel{ShownName(name, kNameMax), ShownName(source, kNameMax)});
}

std::string ToText(const ProgramLabel& label) {
  return label.source.empty() ? label.name : absl::StrCat(label.name, " at ", label.source);
}

void SetProgram(const ProgramLabelRef& label, Failure& failure) {
  if (label == nullptr) return;
  failure.set_program(label->name);
  failure.set_source(label->source);
}

std::string ToText(const Failure& failure) {
  std::string text = failure.message();
  std::string where;
  auto add = [&where](const auto&... parts) {
    absl::StrAppend(&where, where.empty() ? "" : ", ", parts...);
  };
  if (!failure.program().empty()) add("program ", failure.program());
  if (!failure.source().empty()) add("at ", failure.source());
  if (failure.has_node()) {
    add("node ", failure.node(),
        failure.launched_program().empty() ? "" : absl::StrCat(" of ", failure.launched_program()));
  } else if (!failure.launched_program().empty()) {
    add("launch of ", failure.launched_program());
  }
  if (failure.gang() != 0) add("gang ", failure.gang());
  if (!failure.worker().empty()) add("worker ", failure.worker());
  if (failure.incarnation() != 0) add("incarnation ", failure.incarnation());
  if (failure.has_device()) add("device ", failure.device());
  if (failure.has_shard()) add("shard ", failure.shard());
  if (!where.empty()) absl::StrAppend(&text, " [", where, "]");
  if (failure.advice().empty()) return text;
  const bool is_sentence = text.ends_with('.') || text.ends_with('!') || text.ends_with('?');
  absl::StrAppend(&text, is_sentence ? " " : ". ", failure.advice());
  return text;
}

}  // namespace gangway::wire
