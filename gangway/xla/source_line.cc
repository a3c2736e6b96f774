// Implementation of source_line.h.
#include "gangway/xla/source_line.h"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gangway::xla {
namespace {

constexpr int kFramesMax = 1 << 16;
constexpr size_t kFileBytesMax = 1024;

struct Frame {
  std::string_view file;
  std::string_view function;  // as Python qualifies it: "Trainer.fit.<locals>.step"
  int64_t line = 0;
  int parent = 0;  // 1-based, of an earlier frame; 0 = none
};

// All ids of the table are 1-based; 0 and ids out of range mean none.
std::vector<Frame> ReadFrames(const StackFrameIndexProto& table) {
  std::vector<Frame> frames;
  auto text = [](const auto& list, int64_t id) -> std::string_view {
    return id >= 1 && id <= list.size() ? std::string_view(list[static_cast<int>(id - 1)])
                                        : std::string_view();
  };
  for (const auto& each : table.stack_frames()) {
    if (static_cast<int>(frames.size()) == kFramesMax) break;
    Frame& frame = frames.emplace_back();
    const int64_t id = each.file_location_id();
    if (id < 1 || id > table.file_locations_size()) continue;
    const auto& location = table.file_locations(static_cast<int>(id - 1));
    frame.file = text(table.file_names(), location.file_name_id());
    frame.function = text(table.function_names(), location.function_name_id());
    frame.line = location.line();
    const int parent = each.parent_frame_id();
    if (parent >= 1 && parent < static_cast<int>(frames.size())) frame.parent = parent;
  }
  return frames;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsUsers(const Frame& frame) {
  return !frame.file.empty() && frame.file.size() <= kFileBytesMax && frame.line > 0 &&
         !frame.file.starts_with("<frozen ") && !Contains(frame.file, "site-packages/") &&
         !Contains(frame.file, "dist-packages/");
}

std::string_view TrimUnderscores(std::string_view name) {
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);
  while (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return name;
}

// Whether a module of this name ("jit_step", "jit__lambda", "jit_step.3") was made from a function
// of that name ("step", "<lambda>").
bool IsModuleOf(std::string_view module, std::string_view function) {
  const size_t prefix = module.find('_');
  if (prefix == std::string_view::npos) return false;
  module.remove_prefix(prefix + 1);
  module = module.substr(0, module.find('.'));
  if (const size_t scope = function.rfind('.'); scope != std::string_view::npos)
    function.remove_prefix(scope + 1);
  std::string plain(function);
  for (char& c : plain) {
    if (c == '<' || c == '>') c = '_';
  }
  const std::string_view name = TrimUnderscores(module);
  return !name.empty() && name == TrimUnderscores(plain);
}

}  // namespace

std::string SourceLine(const HloModuleProto& module) {
  const std::vector<Frame> frames = ReadFrames(module.stack_frame_index());
  std::vector<int> depths(frames.size(), 0);      // frames above it
  std::vector<bool> users(frames.size(), false);  // it and all above it are the user's
  const Frame* best = nullptr;
  // Lower is better: frames of the jitted function before all others. Among the former the
  // outermost call wins, among the latter the innermost; then the first line.
  std::tuple<int, int, int64_t> best_rank;
  for (size_t i = 0; i < frames.size(); ++i) {
    const Frame& frame = frames[i];
    const bool top = frame.parent == 0;
    depths[i] = top ? 0 : depths[frame.parent - 1] + 1;
    users[i] = IsUsers(frame) && (top || users[frame.parent - 1]);
    if (!IsUsers(frame)) continue;
    const bool jitted = IsModuleOf(module.name(), frame.function);
    if (!jitted && !users[i]) continue;  // called back by a library
    const std::tuple<int, int, int64_t> rank = {jitted ? 0 : 1, jitted ? depths[i] : -depths[i],
                                                frame.line};
    if (best != nullptr && rank >= best_rank) continue;
    best = &frame;
    best_rank = rank;
  }
  return best == nullptr ? "" : absl::StrCat(std::string(best->file), ":", best->line);
}

std::vector<std::string> SourceLines(const StackFrameIndexProto& table) {
  std::vector<std::string> lines;
  for (const Frame& frame : ReadFrames(table)) {
    if (IsUsers(frame)) {
      lines.push_back(absl::StrCat(std::string(frame.file), ":", frame.line));
    } else {
      lines.push_back(frame.parent == 0 ? "" : lines[frame.parent - 1]);
    }
  }
  return lines;
}

}  // namespace gangway::xla
