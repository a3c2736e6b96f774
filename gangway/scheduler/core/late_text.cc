// Implementation of late_text.h.
#include "gangway/scheduler/core/late_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

using LateMembers = wire::Wait::LateMembers;

std::string ForGang(const LateMembers& late) {
  std::string text = absl::StrCat("gang ", late.for_gang());
  if (!late.for_program().empty())
    absl::StrAppend(&text, " (",
                    wire::ToText(wire::ProgramLabel{late.for_program(), late.for_source()}), ")");
  if (late.for_session() != 0) absl::StrAppend(&text, " of session ", late.for_session());
  return text;
}

std::string CauseText(const LateMembers& late) {
  switch (late.cause()) {
    case LateMembers::CAUSE_DOWN:
      return "which is dead";
    case LateMembers::CAUSE_SILENT:
      return absl::StrCat("which is silent (no heartbeat for ", SecondsText(late.for_ms()), ")");
    case LateMembers::CAUSE_STUCK:
      return absl::StrCat("which is stuck in ", ForGang(late), " (the device runtime has not ",
                          "returned for ", SecondsText(late.for_ms()), ")");
    case LateMembers::CAUSE_CALLBACK:
      return absl::StrCat("which waits for client ", late.client(),
                          " to return from a host callback");
    case LateMembers::CAUSE_INPUT:
      return late.for_gang() == 0
                 ? "which waits for an input"
                 : absl::StrCat("which waits for an input that ", ForGang(late), " produces");
    case LateMembers::CAUSE_BEHIND_GANG:
      return absl::StrCat("which is behind ", ForGang(late));
    case LateMembers::CAUSE_NOT_ENQUEUED:
      return "which the device runtime has not been given yet";
    case LateMembers::CAUSE_EXECUTING:
      return "which executes, and has not come to it";
    default:
      return "for a reason that this version of gangway does not know";
  }
}

}  // namespace

std::string SecondsText(uint64_t ms) {
  return ms < 10000 ? absl::StrFormat("%.1f s", static_cast<double>(ms) / 1000)
                    : absl::StrCat(ms / 1000, " s");
}

std::string CollectiveText(const wire::Wait& wait) {
  std::string text = absl::StrCat("collective ", wait.collective(), ", where ",
                                  wait.members_waiting(), " of ", wait.members(), " members wait");
  const char* separator = " for ";
  for (const LateMembers& late : wait.late()) {
    absl::StrAppend(&text, separator);
    for (int i = 0; i < late.devices_size(); ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", "device ", late.devices(i));
    absl::StrAppend(&text, " of ", late.worker(), ", ", CauseText(late));
    separator = "; ";
  }
  if (wait.late_left_out() != 0) absl::StrAppend(&text, "; and ", wait.late_left_out(), " more");
  return text;
}

}  // namespace gangway::scheduler
