// The plugin's table of functions: GetPjrtApi, the only symbol that the library exports. Every function of version 0.81
// is in it; those that are not served answer UNIMPLEMENTED with their name.
#include "absl/status/status.h"
#include "pjrt_c_api.h"

#include "gangway/frontdoor/pjrt/async_transfer.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/callbacks.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/frontdoor/pjrt/executable.h"
#include "gangway/frontdoor/pjrt/extensions.h"
#include "gangway/frontdoor/pjrt/program_blocks.h"

namespace gangway::pjrt {
namespace {

#define GANGWAY_SERVED(function, implementation)                                               \
  table.PJRT_##function = [](PJRT_##function##_Args* args) {                                   \
    return Guard("PJRT_" #function, PJRT_##function##_Args_STRUCT_SIZE, args, implementation); \
  }

#define GANGWAY_NOT_SERVED(function)                                                         \
  table.PJRT_##function = [](PJRT_##function##_Args*) {                                      \
    return ToError(absl::UnimplementedError("PJRT_" #function " is not served by Gangway")); \
  }

void AddEvents(PJRT_Api& table) {
  GANGWAY_SERVED(Error_GetCode, ErrorCode);
  GANGWAY_SERVED(Plugin_Initialize, PluginInitialize);
  GANGWAY_SERVED(Plugin_Attributes, PluginAttributes);
  GANGWAY_SERVED(Event_Destroy, EventDestroy);
  GANGWAY_SERVED(Event_IsReady, EventIsReady);
  GANGWAY_SERVED(Event_Error, EventError);
  GANGWAY_SERVED(Event_Await, EventAwait);
  GANGWAY_SERVED(Event_OnReady, EventOnReady);
}

void AddClient(PJRT_Api& table) {
  GANGWAY_SERVED(Client_Create, ClientCreate);
  GANGWAY_SERVED(Client_Destroy, ClientDestroy);
  GANGWAY_SERVED(Client_PlatformName, ClientPlatformName);
  GANGWAY_SERVED(Client_ProcessIndex, ClientProcessIndex);
  GANGWAY_SERVED(Client_PlatformVersion, ClientPlatformVersion);
  GANGWAY_SERVED(Client_Devices, ClientDevices);
  GANGWAY_SERVED(Client_AddressableDevices, ClientAddressableDevices);
  GANGWAY_SERVED(Client_LookupDevice, ClientLookupDevice);
  GANGWAY_SERVED(Client_LookupAddressableDevice, ClientLookupAddressableDevice);
  GANGWAY_SERVED(Client_AddressableMemories, ClientAddressableMemories);
  GANGWAY_SERVED(Client_Compile, ClientCompile);
  GANGWAY_SERVED(Client_DefaultDeviceAssignment, ClientDefaultDeviceAssignment);
  GANGWAY_SERVED(Client_UpdateGlobalProcessInfo, ClientUpdateProcesses);
  GANGWAY_SERVED(Client_BufferFromHostBuffer, BufferFromHost);
  GANGWAY_SERVED(TopologyDescription_Destroy, TopologyDestroy);
  GANGWAY_SERVED(TopologyDescription_PlatformName, TopologyPlatformName);
  GANGWAY_SERVED(TopologyDescription_PlatformVersion, TopologyPlatformVersion);
  GANGWAY_SERVED(TopologyDescription_GetDeviceDescriptions, TopologyDevices);
  GANGWAY_SERVED(TopologyDescription_Serialize, TopologySerialize);
  GANGWAY_SERVED(TopologyDescription_Attributes, TopologyAttributes);
  GANGWAY_SERVED(Client_TopologyDescription, ClientTopology);
}

void AddDevices(PJRT_Api& table) {
  GANGWAY_SERVED(DeviceDescription_Id, DescriptionId);
  GANGWAY_SERVED(DeviceDescription_ProcessIndex, DescriptionProcessIndex);
  GANGWAY_SERVED(DeviceDescription_Attributes, DescriptionAttributes);
  GANGWAY_SERVED(DeviceDescription_Kind, DescriptionKind);
  GANGWAY_SERVED(DeviceDescription_DebugString, DescriptionDebugString);
  GANGWAY_SERVED(DeviceDescription_ToString, DescriptionToString);
  GANGWAY_SERVED(Device_GetDescription, DeviceDescription);
  GANGWAY_SERVED(Device_IsAddressable, DeviceIsAddressable);
  GANGWAY_SERVED(Device_LocalHardwareId, DeviceLocalHardwareId);
  GANGWAY_SERVED(Device_AddressableMemories, DeviceMemories);
  GANGWAY_SERVED(Device_DefaultMemory, DeviceDefaultMemory);
  GANGWAY_SERVED(Device_MemoryStats, DeviceMemoryStats);
  GANGWAY_SERVED(Memory_Id, MemoryIdOf);
  GANGWAY_SERVED(Memory_Kind, MemoryKind);
  GANGWAY_SERVED(Memory_DebugString, MemoryDebugString);
  GANGWAY_SERVED(Memory_ToString, MemoryToString);
  GANGWAY_SERVED(Memory_AddressableByDevices, MemoryDevices);
  GANGWAY_SERVED(Memory_Kind_Id, MemoryKindId);
}

void AddExecutables(PJRT_Api& table) {
  GANGWAY_SERVED(Executable_Destroy, ExecutableDestroy);
  GANGWAY_SERVED(Executable_Name, ExecutableName);
  GANGWAY_SERVED(Executable_NumReplicas, ExecutableReplicas);
  GANGWAY_SERVED(Executable_NumPartitions, ExecutablePartitions);
  GANGWAY_SERVED(Executable_NumOutputs, ExecutableResults);
  GANGWAY_SERVED(Executable_SizeOfGeneratedCodeInBytes, ExecutableCodeSize);
  GANGWAY_SERVED(Executable_GetCostAnalysis, ExecutableCost);
  GANGWAY_SERVED(Executable_OutputMemoryKinds, ExecutableResultKinds);
  GANGWAY_SERVED(Executable_OptimizedProgram, ExecutableOptimized);
  GANGWAY_SERVED(LoadedExecutable_Destroy, LoadedDestroy);
  GANGWAY_SERVED(LoadedExecutable_GetExecutable, LoadedExecutable);
  GANGWAY_SERVED(LoadedExecutable_AddressableDevices, LoadedDevices);
  GANGWAY_SERVED(LoadedExecutable_Delete, LoadedDelete);
  GANGWAY_SERVED(LoadedExecutable_IsDeleted, LoadedIsDeleted);
  GANGWAY_SERVED(LoadedExecutable_Execute, LoadedExecute);
  GANGWAY_SERVED(LoadedExecutable_Fingerprint, LoadedFingerprint);
  GANGWAY_SERVED(Executable_OutputElementTypes, ExecutableResultTypes);
  GANGWAY_SERVED(Executable_OutputDimensions, ExecutableResultDims);
  GANGWAY_SERVED(Executable_Fingerprint, ExecutableFingerprint);
  GANGWAY_SERVED(Executable_Serialize, ExecutableSerialize);
  GANGWAY_SERVED(Executable_DeserializeAndLoad, ExecutableLoad);
  // Callers of older headers have fewer numbers.
  table.PJRT_Executable_GetCompiledMemoryStats =
      [](PJRT_Executable_GetCompiledMemoryStats_Args* args) {
        return Guard(
            "PJRT_Executable_GetCompiledMemoryStats",
            PJRT_STRUCT_SIZE(PJRT_Executable_GetCompiledMemoryStats_Args, alias_size_in_bytes),
            args, ExecutableMemory);
      };
  GANGWAY_SERVED(ExecuteContext_Create, ContextCreate);
  GANGWAY_SERVED(ExecuteContext_Destroy, ContextDestroy);
  GANGWAY_SERVED(LoadedExecutable_GetDeviceAssignment, LoadedAssignment);
}

void AddBuffers(PJRT_Api& table) {
  GANGWAY_SERVED(Client_CreateViewOfDeviceBuffer, BufferViewOf);
  GANGWAY_SERVED(Buffer_Destroy, BufferDestroy);
  GANGWAY_SERVED(Buffer_ElementType, BufferElementType);
  GANGWAY_SERVED(Buffer_Dimensions, BufferDimensions);
  GANGWAY_SERVED(Buffer_UnpaddedDimensions, BufferUnpaddedDimensions);
  GANGWAY_SERVED(Buffer_DynamicDimensionIndices, BufferDynamicDimensions);
  GANGWAY_SERVED(Buffer_GetMemoryLayout, BufferLayout);
  GANGWAY_SERVED(Buffer_OnDeviceSizeInBytes, BufferSize);
  GANGWAY_SERVED(Buffer_Device, BufferDevice);
  GANGWAY_SERVED(Buffer_Memory, BufferMemory);
  GANGWAY_SERVED(Buffer_Delete, BufferDelete);
  GANGWAY_SERVED(Buffer_IsDeleted, BufferIsDeleted);
  GANGWAY_SERVED(Buffer_CopyToDevice, BufferToDevice);
  GANGWAY_SERVED(Buffer_ToHostBuffer, BufferToHost);
  GANGWAY_SERVED(Buffer_IsOnCpu, BufferIsOnCpu);
  GANGWAY_SERVED(Buffer_ReadyEvent, BufferReadyEvent);
  GANGWAY_SERVED(Buffer_CopyToMemory, BufferToMemory);
  GANGWAY_SERVED(Buffer_CopyRawToHost, BufferRawToHost);
  GANGWAY_SERVED(Buffer_UnsafePointer, BufferUnsafePointer);
  GANGWAY_SERVED(Buffer_IncreaseExternalReferenceCount, BufferAddReference);
  GANGWAY_SERVED(Buffer_DecreaseExternalReferenceCount, BufferRemoveReference);
  GANGWAY_SERVED(Buffer_OpaqueDeviceMemoryDataPointer, BufferPointer);
}

void AddTransfers(PJRT_Api& table) {
  GANGWAY_SERVED(Client_CreateBuffersForAsyncHostToDevice, AsyncCreate);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_Destroy, AsyncDestroy);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_TransferData, AsyncTransfer);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_RetrieveBuffer, AsyncBuffer);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_Device, AsyncDevice);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_BufferCount, AsyncCount);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_BufferSize, AsyncSize);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_SetBufferError, AsyncError);
  GANGWAY_SERVED(AsyncHostToDeviceTransferManager_AddMetadata, AsyncMetadata);
}

void AddNotServed(PJRT_Api& table) {
  GANGWAY_NOT_SERVED(CopyToDeviceStream_Destroy);
  GANGWAY_NOT_SERVED(CopyToDeviceStream_AddChunk);
  GANGWAY_NOT_SERVED(CopyToDeviceStream_TotalBytes);
  GANGWAY_NOT_SERVED(CopyToDeviceStream_GranuleSize);
  GANGWAY_NOT_SERVED(CopyToDeviceStream_CurrentBytes);
  GANGWAY_NOT_SERVED(TopologyDescription_Create);
  GANGWAY_NOT_SERVED(Compile);
  GANGWAY_NOT_SERVED(Client_DmaMap);
  GANGWAY_NOT_SERVED(Client_DmaUnmap);
  GANGWAY_NOT_SERVED(Client_CreateUninitializedBuffer);
  GANGWAY_NOT_SERVED(TopologyDescription_Deserialize);
  GANGWAY_NOT_SERVED(Client_CreateAliasBuffer);
  GANGWAY_NOT_SERVED(Client_FulfillAliasBuffer);
}

PJRT_Api MakeTable() {
  PJRT_Api table{};
  table.struct_size = PJRT_Api_STRUCT_SIZE;
  table.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  table.pjrt_api_version.major_version = PJRT_API_MAJOR;
  table.pjrt_api_version.minor_version = PJRT_API_MINOR;
  table.extension_start = CallbacksExtension();
  table.extension_start->next = ProgramsExtension();
  table.extension_start->next->next = Extensions();
  table.PJRT_Error_Destroy = DestroyError;
  table.PJRT_Error_Message = ErrorMessage;
  AddEvents(table);
  AddClient(table);
  AddDevices(table);
  AddExecutables(table);
  AddBuffers(table);
  AddTransfers(table);
  AddNotServed(table);
  return table;
}

}  // namespace
}  // namespace gangway::pjrt

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api table = gangway::pjrt::MakeTable();
  return &table;
}
