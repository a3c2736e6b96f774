// How much memory of its devices a process takes.
#ifndef GANGWAY_DEVICE_DEVICE_MEMORY_H_
#define GANGWAY_DEVICE_DEVICE_MEMORY_H_

namespace gangway::device {

// For plugins that take memory before it is needed (CUDA). Others refuse what was chosen here.
struct DeviceMemory {
  double fraction = 0;      // of each device, at most 1; 0: the plugin's own choice
  bool preallocate = true;  // as the plugin does by default; false: only what is needed

  bool chosen() const { return fraction != 0 || !preallocate; }
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_DEVICE_MEMORY_H_
