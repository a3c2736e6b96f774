// Implementation of late_text.h.
#include "gangway/wire/late_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gangway/wire/failure.h"

namespace gangway::wire {
namespace {

using Missing = Wait::Missing;

std::string ForGang(const Missing& missing) {
  std::string text = absl::StrCat("gang ", missing.for_gang());
  if (!missing.for_program().empty())
    absl::StrAppend(&text, " (", ToText(ProgramLabel{missing.for_program(), missing.for_source()}),
                    ")");
  if (missing.for_session() != 0) absl::StrAppend(&text, " of session ", missing.for_session());
  return text;
}

std::string CauseText(const Missing& missing) {
  switch (missing.cause()) {
    case Missing::CAUSE_DOWN:
      return "which is dead";
    case Missing::CAUSE_SILENT:
      return absl::StrCat("which is silent (no heartbeat for ", SecondsText(missing.for_ms()), ")");
    case Missing::CAUSE_STUCK:
      return absl::StrCat("which is stuck in ", ForGang(missing), " (the device runtime has not ",
                          "returned for ", SecondsText(missing.for_ms()), ")");
    case Missing::CAUSE_CALLBACK:
      return absl::StrCat("which waits for client ", missing.client(),
                          " to return from a host callback");
    case Missing::CAUSE_INPUT:
      return missing.for_gang() == 0
                 ? "which waits for an input"
                 : absl::StrCat("which waits for an input that ", ForGang(missing), " produces");
    case Missing::CAUSE_BEHIND_GANG:
      return absl::StrCat("which is behind ", ForGang(missing));
    case Missing::CAUSE_NOT_ENQUEUED:
      return "which the device runtime has not been given yet";
    case Missing::CAUSE_EXECUTING:
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

std::string CollectiveText(const Wait& wait) {
  std::string text = absl::StrCat("collective ", wait.collective(), ", where ",
                                  wait.members_waiting(), " of ", wait.members(), " members wait");
  const char* separator = " for ";
  for (const Missing& missing : wait.missing()) {
    absl::StrAppend(&text, separator);
    for (int i = 0; i < missing.devices_size(); ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", "device ", missing.devices(i));
    absl::StrAppend(&text, " of ", missing.worker(), ", ", CauseText(missing));
    separator = "; ";
  }
  if (wait.missing_left_out() != 0)
    absl::StrAppend(&text, "; and ", wait.missing_left_out(), " more");
  return text;
}

}  // namespace gangway::wire
