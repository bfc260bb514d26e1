/* GEMMs by falchion's kernels for NVIDIA's Hopper (sm_90a).
 *
 *     D = alpha * A * B + beta * C        A is M x K, B is K x N, C and D are M x N, row-major
 *
 * The library chooses a kernel for a GEMM, or takes the kernel that a spec names. The kernel can be printed as PTX, run in an emulator on
 * the host's memory, and launched on a card. Only falchion_gemm_load and launches need NVIDIA's driver.
 *
 * Functions return FALCHION_OK or an error; falchion_last_error() returns its message. Several threads may use a falchion_gemm
 * at once, but only one may destroy it. */
#ifndef FALCHION_H
#define FALCHION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FALCHION_OK = 0,
    FALCHION_INVALID = 1,   /* an argument is invalid; the message names it, its value and what was needed */
    FALCHION_NO_KERNEL = 2, /* no kernel supports the GEMM; the message has the reason */
    FALCHION_DRIVER = 3,    /* the driver is missing, or returned an error */
    FALCHION_FAULT = 4,     /* the emulator found a fault in the run: a race, a bad access, a hang */
    FALCHION_INTERNAL = 5   /* an error of this library */
} falchion_status;

/* A kernel for GEMMs of one shape. */
typedef struct falchion_gemm falchion_gemm;

/* Describes the GEMMs of a kernel. Set all fields that are not used to 0: {.size = sizeof(falchion_gemm_desc), ...}. */
typedef struct {
    /* sizeof(falchion_gemm_desc). Later versions append fields; a shorter structure than this library's is refused, and so is a longer
     * one that is not zero where this library knows no field. */
    size_t size;
    /* Number formats of A, B and D: "bf16" (all three), "bf16-bf16-f32", "f16", "tf32", "f32", "f64", "e4m3", "e4m3-e5m2-bf16", "s8", "u8". With
     * one name, D has its default format: f32 for tf32, bf16 for 8-bit floats, s32 for integers, otherwise the same. */
    const char *types;
    /* The contiguous directions of A and B: "kk" (A row-major, B column-major, as weights are stored), "kn" (both row-major), "mk",
     * "mn". NULL is "kk". 8-bit formats and tf32 support only "kk". */
    const char *layout;
    uint32_t m, n, k;
    /* Number of GEMMs in one launch; 0 means 1. */
    uint32_t batch;
    /* The kernel's spec, for example "tile=128x192x64 cluster=2x1"; NULL lets the library choose. falchion_gemm_name() returns such a
     * text. Types, layout and batch may be left out of it; where it names them, they must be those of this description. */
    const char *spec;
    /* Leading dimensions: elements from one contiguous row or column to the next; 0 is packed. */
    uint64_t lda, ldb, ldc, ldd;
    /* Elements from one GEMM's matrix to the next one's; 0 is packed. Used only for batches. */
    uint64_t stride_a, stride_b, stride_c, stride_d;
    /* Every matrix address is a multiple of this number of bytes, a power of two; 0 means 256, as cuMemAlloc returns. Most kernels need 16,
     * also of leading dimensions; with less, a slower one is chosen. An element's address is always a multiple of its size. */
    uint32_t alignment;
    /* The card to choose for: 1 is the driver's card 0. 0 chooses for an H200 and asks no card. */
    uint32_t card;
} falchion_gemm_desc;

/* The arguments of a run: device addresses for falchion_gemm_launch, host pointers for falchion_gemm_emulate. */
typedef struct {
    const void *a, *b, *c; /* C may be D; C may be NULL where beta is 0 */
    void *d;
    float alpha, beta;
    /* Device memory of falchion_gemm_workspace() bytes. Zero it once; after that only launches on one stream may use it. The
     * emulator ignores it. */
    void *workspace;
    uint64_t workspace_bytes;
} falchion_gemm_args;

/* Returns the library's version, for example "0.1.0". */
const char *falchion_version(void);

/* Returns the message of this thread's last call that failed, "" if none did. It is valid until the thread's next call that fails. */
const char *falchion_last_error(void);

/* Makes a kernel: chooses one, or takes the one that desc->spec names. It serves the described leading dimensions, strides and alignment;
 * a description that no kernel serves is refused. A card is needed only where desc->card is not 0. *gemm is NULL on failure. */
falchion_status falchion_gemm_create(const falchion_gemm_desc *desc, falchion_gemm **gemm);

/* Frees a kernel; NULL is ignored. Its launches must have ended. */
void falchion_gemm_destroy(falchion_gemm *gemm);

/* Returns the text of the kernel's spec, which desc->spec takes; valid as long as the kernel. NULL for NULL. */
const char *falchion_gemm_name(const falchion_gemm *gemm);

/* Returns the kernel's program as PTX text; valid as long as the kernel. NULL for NULL. */
const char *falchion_gemm_ptx(const falchion_gemm *gemm);

/* Compiles the kernel for a card, in its primary context. Takes milliseconds. */
falchion_status falchion_gemm_load(falchion_gemm *gemm, int device);

/* Writes the size in bytes of the workspace that a launch needs in addition to its matrices. The kernel must be loaded. */
falchion_status falchion_gemm_workspace(const falchion_gemm *gemm, uint64_t *bytes);

/* Enqueues the GEMM on a CUstream of the card's primary context (NULL is the default stream), and returns at once. */
falchion_status falchion_gemm_launch(falchion_gemm *gemm, void *stream, const falchion_gemm_args *args);

/* Runs the kernel on the host's memory, in an emulator of the card that finds races, and waits for the result. Addresses are checked as
 * falchion_gemm_launch checks them. */
falchion_status falchion_gemm_emulate(falchion_gemm *gemm, const falchion_gemm_args *args);

#ifdef __cplusplus
}
#endif

#endif
