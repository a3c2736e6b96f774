// What a Function shares with its copies: a compiled function of the session, which it drops at its end, and the types
// that its calls take and give.
//
// Threading: constant. Failure: as Callee.
#ifndef GANGWAY_CLIENT_API_FUNCTION_STATE_H_
#define GANGWAY_CLIENT_API_FUNCTION_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/client/api/callee.h"
#include "gangway/client/include/gangway/function.h"

namespace gangway::api {

class FunctionState final : public Callee, public std::enable_shared_from_this<FunctionState> {
 public:
  // Where the arguments of a call may be. The controller moves those of a program's calls, and no others.
  enum class Where { kOnItsMesh, kOnAnyMesh };

  // Compiles, and waits for it. See Cluster::Compile.
  static absl::StatusOr<Function> Compile(const std::shared_ptr<Session>& session,
                                          std::string stablehlo, const Mesh& mesh,
                                          const FunctionOptions& options);
  ~FunctionState() override;

  void Call(std::span<const Argument> arguments, std::span<Array> results,
            const std::source_location& where) const override;

  const Mesh& mesh() const { return mesh_; }
  ExecutableHandle handle() const { return handle_; }
  const ExecutableInfo& info() const { return *info_; }

  // OK, or how the argument differs from what is taken there.
  absl::Status CheckArgument(size_t index, const ArrayType& type, Where allowed,
                             const std::source_location& where) const;
  absl::Status CheckNumber(size_t arguments, const std::source_location& where) const {
    return CheckCount(arguments, where);
  }
  // Of arguments that the function would donate and the caller does not give away: their indices, increasing.
  std::vector<uint32_t> KeptOf(std::span<const Argument> arguments) const;

 private:
  // An executable of the session, dropped unless a function takes it over.
  struct Compiled;

  FunctionState(const std::shared_ptr<Session>& session, ExecutableHandle handle,
                std::shared_ptr<const ExecutableInfo> info, Mesh mesh,
                std::vector<ArrayTypeRef> results, std::vector<Sharding> parameters);

  const ExecutableHandle handle_;
  const std::shared_ptr<const ExecutableInfo> info_;
  const Mesh mesh_;
  const std::vector<Sharding> parameters_;  // empty: any
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_FUNCTION_STATE_H_
