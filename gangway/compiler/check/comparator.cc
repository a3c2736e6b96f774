// Implementation of comparator.h.
//
// Parameters 2i and 2i + 1 are the i-th value of the left and of the right element. Each instruction gets a number for
// what it computes, and one for its mirror image: the same with left and right exchanged. Equal numbers mean equal
// computations. So `compare(x, y)` compares alike if y has the number of x's mirror image, and that of f(a), where f
// reads only one side.
#include "gangway/compiler/check/comparator.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Instruction;

struct Numbered {
  int self = 0;
  int mirror = 0;
  bool is_left = false;  // reads a parameter of the left element
  bool is_right = false;
};

// An order f(a) < f(b), or the equality of the same, by the numbers of its two sides.
struct Sides {
  int left = 0;
  int right = 0;
  friend bool operator==(const Sides&, const Sides&) = default;
};

class Comparator {
 public:
  explicit Comparator(const xla::hlo::Computation& computation) : computation_(computation) {
    for (const Instruction& each : computation.instructions()) Add(each);
  }

  bool IsOrder(int64_t id) const {
    // Each step takes the next key; an instruction is an operand of a later one only, so this ends.
    const Instruction* order = Find(id);
    while (order != nullptr && order->opcode() != "compare") {
      const auto [first, equal, next] = Lexicographic(*order);
      const auto sides = first ? SidesOf(*first, "LT", "GT") : std::nullopt;
      if (!sides || sides != SidesOf(*equal, "EQ", "EQ")) return false;
      order = next;
    }
    return order != nullptr && SidesOf(*order, "LT", "GT").has_value();
  }

 private:
  struct Keys {
    const Instruction* first = nullptr;
    const Instruction* equal = nullptr;
    const Instruction* next = nullptr;
  };

  const Instruction* Find(int64_t id) const {
    const auto found = indices_.find(id);
    return found == indices_.end() ? nullptr : &computation_.instructions(found->second);
  }
  const Instruction* Operand(const Instruction& of, int i) const {
    return i < of.operand_ids_size() ? Find(of.operand_ids(i)) : nullptr;
  }

  // first | (equal & next), in either order of operands.
  Keys Lexicographic(const Instruction& order) const {
    if (order.opcode() != "or" || order.operand_ids_size() != 2) return {};
    for (const int i : {0, 1}) {
      const Instruction* first = Operand(order, i);
      const Instruction* both = Operand(order, 1 - i);
      if (first->opcode() != "compare" || both->opcode() != "and") continue;
      for (const int j : {0, 1}) {
        const Instruction* equal = Operand(*both, j);
        if (equal->opcode() == "compare" && equal->comparison_direction() == "EQ")
          return {first, equal, Operand(*both, 1 - j)};
      }
    }
    return {};
  }

  // The sides of a total comparison of f(a) and f(b). None if it is something else.
  std::optional<Sides> SidesOf(const Instruction& compare, std::string_view direction,
                               std::string_view or_direction) const {
    if (compare.comparison_direction() != direction &&
        compare.comparison_direction() != or_direction)
      return std::nullopt;
    const Instruction* left = Operand(compare, 0);
    const int type = left->shape().element_type();
    const bool is_total =
        IsInteger(type) || IsPred(type) || compare.comparison_type() == "TOTALORDER";
    const Numbered& a = numbers_.at(compare.operand_ids(0));
    const Numbered& b = numbers_.at(compare.operand_ids(1));
    if (!is_total || a.mirror != b.self || a.self != b.mirror) return std::nullopt;
    if (a.is_left == a.is_right || b.is_left == b.is_right || a.is_left == b.is_left)
      return std::nullopt;
    return a.is_left ? Sides{a.self, b.self} : Sides{b.self, a.self};
  }

  // The same text means the same computation: it has the opcode, what the opcode depends on, and the operands.
  int Number(const std::string& text) {
    return texts_.try_emplace(text, static_cast<int>(texts_.size())).first->second;
  }

  void Add(const Instruction& each) {
    indices_.emplace(each.id(), static_cast<int>(indices_.size()));
    Numbered& numbered = numbers_[each.id()];
    if (each.opcode() == "parameter") {
      const int64_t number = each.parameter_number();
      numbered = {Number(absl::StrCat("parameter ", number)),
                  Number(absl::StrCat("parameter ", number ^ 1)), number % 2 == 0, number % 2 == 1};
      return;
    }
    // What is neither an operand, a name nor a note on where it comes from.
    Instruction bare = each;
    bare.clear_name();
    bare.clear_metadata();
    bare.clear_id();
    bare.clear_operand_ids();
    bare.clear_frontend_attributes();
    bare.clear_statistics_viz();
    std::string self = bare.SerializeAsString(), mirror = self;
    Numbered made;
    for (const int64_t id : each.operand_ids()) {
      const Numbered& operand = numbers_.at(id);
      absl::StrAppend(&self, ",", operand.self);
      absl::StrAppend(&mirror, ",", operand.mirror);
      made.is_left |= operand.is_left;
      made.is_right |= operand.is_right;
    }
    made.self = Number(self);
    made.mirror = Number(mirror);
    numbers_[each.id()] = made;
  }

  const xla::hlo::Computation& computation_;
  absl::flat_hash_map<int64_t, int> indices_;
  absl::flat_hash_map<int64_t, Numbered> numbers_;
  absl::flat_hash_map<std::string, int> texts_;
};

}  // namespace

bool IsStrictWeakOrder(const Callee& comparator) {
  return comparator.is_for_elements &&
         Comparator(*comparator.computation).IsOrder(comparator.computation->root_id());
}

}  // namespace gangway::compiler
