// Stands in for the CUDA driver and its runtime where a host program prepares a launch: no kernel runs, but what it would be launched with
// is handed to `launched`, and the arguments of each tensor map are kept. Memory of the device is memory of the host.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t element, rank, interleave, swizzle, promotion, fill;
    uint64_t address, dims[5], strides[5];
    uint32_t box[5], steps[5];
} Map;

typedef struct {
    uint32_t grid[3], block[3];
    size_t shared;
    void *stream, *attributes;
    uint32_t count;
} Config;

typedef struct {
    int32_t id, pad;
    uint32_t value[16];
} Attribute;

typedef struct {
    const void *host;
    const char *name;
} Name;

// What a tensor map begins with, before its number.
static const char magic[12] = "tensor map #";
static Map maps[256];
static Name names[256];
static int32_t map_count, name_count;

// Set by whoever loads this library.
void (*launched)(const char *name, const uint32_t *sizes, uint64_t shared, int32_t dependent, void **arguments);
int32_t processors = 4;

const Map *recorded_map(int32_t number) { return number >= 0 && number < map_count ? &maps[number] : NULL; }

// A kernel is known by a pointer: that of its name, or that of a function of the host which stands for it.
static const char *name_of(const void *kernel) {
    for (int32_t i = 0; i < name_count; i++)
        if (names[i].host == kernel) return names[i].name;
    return kernel;
}

static int attribute(int *value, int which) {
    switch (which) {
    case 1: *value = 1024; break;          // threads per block
    case 8: *value = 49152; break;         // shared memory per block
    case 10: *value = 32; break;           // threads per warp
    case 16: *value = processors; break;   // multiprocessors
    case 39: *value = 2048; break;         // threads per multiprocessor
    case 75: *value = 9; break;            // compute capability
    case 76: *value = 0; break;
    case 81: *value = 233472; break;       // shared memory per multiprocessor
    case 97: *value = 232448; break;       // shared memory per block, at most
    default: *value = 1;
    }
    return 0;
}

int cuTensorMapEncodeTiled(void *map, int element, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    if (map_count == sizeof maps / sizeof *maps || rank < 1 || rank > 5) return 1;
    Map *to = &maps[map_count];
    *to = (Map){element, (int32_t)rank, interleave, swizzle, promotion, fill, (uint64_t)address, {0}, {0}, {0}, {0}};
    memcpy(to->dims, dims, rank * 8);
    memcpy(to->strides, strides, (rank - 1) * 8);
    memcpy(to->box, box, rank * 4);
    memcpy(to->steps, steps, rank * 4);
    memset(map, 0, 128);
    memcpy(map, magic, sizeof magic);
    memcpy((char *)map + sizeof magic, &map_count, 4);
    map_count++;
    return 0;
}

static int launch(const void *kernel, const uint32_t *sizes, uint64_t shared, int dependent, void **arguments) {
    if (launched) launched(name_of(kernel), sizes, shared, dependent, arguments);
    return 0;
}

int cudaLaunchKernelExC(const Config *config, const void *kernel, void **arguments) {
    uint32_t sizes[9] = {0, 0, 0, 0, 0, 0, 1, 1, 1};
    int dependent = 0;
    memcpy(sizes, config->grid, 12);
    memcpy(sizes + 3, config->block, 12);
    const Attribute *attributes = config->attributes;
    for (uint32_t i = 0; i < config->count; i++) {
        if (attributes[i].id == 4) memcpy(sizes + 6, attributes[i].value, 12); // the cluster
        if (attributes[i].id == 6) dependent = attributes[i].value[0] != 0;    // programmatic stream serialization
    }
    return launch(kernel, sizes, config->shared, dependent, arguments);
}

typedef struct {
    uint32_t x, y, z;
} Extents;

int cudaLaunchKernel(const void *kernel, Extents grid, Extents block, void **arguments, size_t shared, void *stream) {
    (void)stream;
    uint32_t sizes[9] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, 1, 1, 1};
    return launch(kernel, sizes, shared, 0, arguments);
}

typedef struct {
    uint32_t grid[3], block[3], shared;
    void *stream, *attributes;
    uint32_t count;
} DriverConfig;

int cuLaunchKernelEx(const DriverConfig *config, const void *kernel, void **arguments) {
    Config same = {{0}, {0}, config->shared, config->stream, config->attributes, config->count};
    memcpy(same.grid, config->grid, 12);
    memcpy(same.block, config->block, 12);
    return cudaLaunchKernelExC(&same, kernel, arguments);
}

int cuInit(void) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuCtxGetDevice(int *device) { return *device = 0; }
int cuCtxGetCurrent(void **context) { return *context = names, 0; }
int cuDeviceGetAttribute(int *value, int which) { return attribute(value, which); }
int cuModuleLoadData(void **module) { return *module = names, 0; }
int cuModuleUnload(void) { return 0; }
int cuModuleGetFunction(void **kernel, void *module, const char *name) { return (void)module, *kernel = strdup(name), 0; }
int cuFuncSetAttribute(void) { return 0; }
int cuGetErrorString(int error, const char **text) { return (void)error, *text = "an error", 0; }
int cuGetErrorName(int error, const char **text) { return (void)error, *text = "an error", 0; }

int cudaLibraryLoadData(void **library) { return *library = names, 0; }
int cudaLibraryGetKernel(void **kernel, void *library, const char *name) { return (void)library, *kernel = strdup(name), 0; }
int cudaLibraryUnload(void) { return 0; }
int cudaFuncSetAttribute(void) { return 0; }
int cudaKernelSetAttributeForDevice(void) { return 0; }
int cuKernelGetAttribute(int *value) { return *value = 0; }
int cuDeviceGet(int *device) { return *device = 0; }
int cudaGetDevice(int *device) { return *device = 0; }
int cudaSetDevice(void) { return 0; }
int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
int cudaDeviceGetAttribute(int *value, int which) { return attribute(value, which); }
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }
const char *cudaGetErrorString(void) { return "an error"; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count) { return *count = 1, 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count) { return *count = 1, 0; }
int cudaOccupancyMaxActiveClusters(int *count) { return *count = processors, 0; }
int cudaMalloc(void **address, size_t bytes) { return posix_memalign(address, 256, bytes + 256); }
int cudaFree(void *address) { return free(address), 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes), 0; }
int cudaMemsetAsync(void *to, int value, size_t bytes) { return memset(to, value, bytes), 0; }
int cudaGetDriverEntryPoint(const char *name, void **function, uint64_t flags, int *found) {
    (void)flags;
    *function = strcmp(name, "cuTensorMapEncodeTiled") ? NULL : (void *)cuTensorMapEncodeTiled;
    if (found) *found = *function ? 0 : 1;
    return 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, uint64_t flags, int *found) {
    (void)version;
    return cudaGetDriverEntryPoint(name, function, flags, found);
}

// Loads a module of the CuTe DSL once: `state` is 0 before. Arguments are handed on by their addresses, the last one is the result.
int cuda_dialect_init_library_once(int64_t *state, void (*init)(void **), void (*load)(void **)) {
    void *library = NULL, **where = &library;
    int device = 0, error = 0;
    if (*state) return 0;
    *state = 1;
    init((void *[]){&where, &error});
    if (!error) load((void *[]){&where, &device, &error});
    return error;
}
void cuda_dialect_unload_library_once(void) {}

// What a compiler's host code calls.
static struct {
    Extents grid, block;
    size_t shared;
} pushed;
unsigned __cudaPushCallConfiguration(Extents grid, Extents block, size_t shared, void *stream) {
    (void)stream;
    return pushed.grid = grid, pushed.block = block, pushed.shared = shared, 0;
}
int __cudaPopCallConfiguration(Extents *grid, Extents *block, size_t *shared, void **stream) {
    return *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = NULL, 0;
}
int __cudaGetKernel(const void **kernel, const void *host) { return *kernel = name_of(host), 0; }
int __cudaLaunchKernel(const void *kernel, Extents grid, Extents block, void **arguments, size_t shared, void *stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
void **__cudaRegisterFatBinary(void) { return (void **)names; }
void __cudaRegisterFatBinaryEnd(void) {}
void __cudaUnregisterFatBinary(void) {}
void __cudaRegisterVar(void) {}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name) {
    (void)handle, (void)device;
    if (name_count < (int32_t)(sizeof names / sizeof *names)) names[name_count++] = (Name){host, name};
}

// The same by the names by which the CuTe DSL's host code calls them.
#define ALSO(name) extern __typeof__(name) _##name __attribute__((alias(#name)));
ALSO(cuTensorMapEncodeTiled) ALSO(cudaLaunchKernel) ALSO(cudaLibraryLoadData) ALSO(cudaLibraryGetKernel) ALSO(cudaLibraryUnload)
ALSO(cudaFuncSetAttribute) ALSO(cudaKernelSetAttributeForDevice) ALSO(cuKernelGetAttribute) ALSO(cuDeviceGet) ALSO(cudaGetDevice)
ALSO(cudaSetDevice) ALSO(cudaGetDeviceCount) ALSO(cudaDeviceGetAttribute) ALSO(cudaDeviceSynchronize) ALSO(cudaMemsetAsync)
ALSO(cudaMemcpyAsync) ALSO(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
extern __typeof__(cudaLaunchKernelExC) _cudaLaunchKernelEx __attribute__((alias("cudaLaunchKernelExC")));
