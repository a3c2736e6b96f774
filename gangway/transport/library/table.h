// The border between the PJRT plugin and the library with gRPC, which it loads for addresses of other hosts. Both
// hide copies of all that is below them, so only C types cross: frames as bytes, statuses as code and text.
//
// Threading and failure: those of transport.h. Each side calls the other's functions with what that side made
// (`void*`), and ends its life with the function for that. Bytes and texts are borrowed for the call.
#ifndef GANGWAY_TRANSPORT_LIBRARY_TABLE_H_
#define GANGWAY_TRANSPORT_LIBRARY_TABLE_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// Both libraries are built together: another version is not used.
inline constexpr uint32_t kGangwayLinksVersion = 1;

// Takes a status: the code of absl::Status, and its message.
struct GangwayReport {
  void* to;
  void (*status)(void* to, int code, const char* text, size_t size);
};

// The executor of a link's events, which outlives the link.
struct GangwayExecutor {
  void* executor;
  // Calls run(task), then drop(task), on the executor; or only drop(task), if the executor has stopped.
  void (*post)(void* executor, void* task, void (*run)(void* task), void (*drop)(void* task));
};

// The callbacks of a link, which are those of LinkEvents. `owner` is used until `release`.
struct GangwayCallbacks {
  void* owner;
  void (*on_frame)(void* owner, const char* bytes, size_t size);
  void (*on_writable)(void* owner);
  void (*on_closed)(void* owner, int code, const char* text, size_t size);
  void (*release)(void* owner);
};

struct GangwayLinkLimits {
  uint64_t queue_bytes_max;
  uint64_t writable_bytes_max;
  int64_t connect_ms;
};

struct GangwayPeer {
  const char* address;
  const char* certificate;
  int authenticated;
};

struct GangwayLinks {
  uint32_t version;

  // A transport with the TLS folder's certificate; without a folder, for loopback. Null: reported.
  void* (*open)(const char* tls, GangwayReport report);
  void (*close)(void* transport);

  // A link, or null: reported. The callbacks are released in both cases.
  void* (*connect)(void* transport, const char* address, GangwayExecutor executor,
                   GangwayCallbacks callbacks, GangwayLinkLimits limits, GangwayReport report);
  void (*send)(void* link, const char* bytes, size_t size, GangwayReport report);
  size_t (*queued_bytes)(void* link);
  size_t (*writable_bytes)(void* link);
  size_t (*frame_bytes_max)(void* link);
  GangwayPeer (*peer)(void* link);  // lives as long as the link
  void (*close_link)(void* link, int code, const char* text, size_t size);
  void (*release_link)(void* link);
};

const GangwayLinks* GangwayGrpcLinks(void);  // the library's only symbol
}

#endif  // GANGWAY_TRANSPORT_LIBRARY_TABLE_H_
