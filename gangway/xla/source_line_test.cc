// Tests of source_line.h.
#include "gangway/xla/source_line.h"

#include <climits>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

constexpr char kLibrary[] = "/env/lib/python3.11/site-packages/optax/transforms.py";

class SourceLineTest : public ::testing::Test {
 protected:
  explicit SourceLineTest() { module_.set_name("jit_step"); }

  // A frame below `parent` (0: none); returns its id.
  int Frame(std::string_view file, std::string_view function, int line, int parent = 0) {
    StackFrameIndexProto& table = *module_.mutable_stack_frame_index();
    table.add_file_names(std::string(file));
    table.add_function_names(std::string(function));
    auto& location = *table.add_file_locations();
    location.set_file_name_id(table.file_names_size());
    location.set_function_name_id(table.function_names_size());
    location.set_line(line);
    auto& frame = *table.add_stack_frames();
    frame.set_file_location_id(table.file_locations_size());
    frame.set_parent_frame_id(parent);
    return table.stack_frames_size();
  }

  HloModuleProto module_;
};

TEST_F(SourceLineTest, FirstOperationOfTheJittedFunction) {
  Frame("train.py", "Trainer.fit.<locals>.step.<locals>.<lambda>", 3);  // traced on its own
  const int main = Frame("train.py", "<module>", 90);
  const int late = Frame("train.py", "Trainer.fit.<locals>.step", 42, main);
  Frame("model.py", "layer", 9, late);
  Frame("train.py", "Trainer.fit.<locals>.step", 41, main);
  EXPECT_EQ(SourceLine(module_), "train.py:41");
}

TEST_F(SourceLineTest, ACallOfTheSameNameFurtherDownIsNotIt) {
  const int outer = Frame("train.py", "step", 50, Frame("train.py", "<module>", 90));
  Frame("optimizer.py", "step", 7, outer);
  EXPECT_EQ(SourceLine(module_), "train.py:50");
}

TEST_F(SourceLineTest, Lambda) {
  module_.set_name("jit__lambda");
  Frame("train.py", "main.<locals>.<lambda>", 12, Frame("train.py", "main", 30));
  EXPECT_EQ(SourceLine(module_), "train.py:12");
}

TEST_F(SourceLineTest, OfALibrarysFunctionTheLineThatCallsIt) {
  module_.set_name("jit_update_fn");
  const int caller = Frame("train.py", "main", 30, Frame("train.py", "<module>", 90));
  const int update = Frame(kLibrary, "update_fn", 200, caller);
  Frame("train.py", "main.<locals>.schedule", 5, update);  // the library calls back
  EXPECT_EQ(SourceLine(module_), "train.py:30");
}

TEST_F(SourceLineTest, NothingWhereNothingIsKnown) {
  EXPECT_EQ(SourceLine(module_), "");
  Frame(kLibrary, "step", 200);
  Frame("<frozen runpy>", "step", 200);
  EXPECT_EQ(SourceLine(module_), "");
}

TEST_F(SourceLineTest, IdsOfNothing) {
  StackFrameIndexProto& table = *module_.mutable_stack_frame_index();
  Frame("train.py", "step", 4, INT_MAX);
  for (int id : {INT_MIN, -1, 0, 5, INT_MAX}) {
    auto& frame = *table.add_stack_frames();
    frame.set_file_location_id(id);
    frame.set_parent_frame_id(id);
    auto& location = *table.add_file_locations();
    location.set_file_name_id(id);
    location.set_function_name_id(id);
    location.set_line(1);
  }
  EXPECT_EQ(SourceLine(module_), "train.py:4");
}

}  // namespace
}  // namespace gangway::xla
