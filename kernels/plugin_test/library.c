/* SPDX-License-Identifier: Apache-2.0 */
/* One source, many plug-ins: with nothing defined a sound one of two kernels in plain C, with one macro a broken one. */
#include <stddef.h>

#include "kernels/api/smla_kernel.h"

static int supports(const smla_kernel* self, const smla_problem* p, char* reason, uint64_t reason_bytes) {
  const char text[] = "never";
  (void)self, (void)p;
  for (uint64_t i = 0; i < sizeof text && i < reason_bytes; ++i) reason[i] = text[i];
  return 0;
}
static int64_t workspace_bytes(const smla_kernel* self, const smla_problem* p) { return (void)self, (void)p, 0; }
static int launch(const smla_kernel* self, const smla_problem* p, const smla_buffers* io, void* workspace, void* stream) {
  return (void)self, (void)p, (void)io, (void)workspace, (void)stream, 7;
}
#ifdef BAD_CONTRACT
static int contract(const smla_kernel* self, const smla_problem* p, smla_contract* out) { return (void)self, (void)p, out->lse_base = 9, 0; }
#else
#define contract NULL
#endif

#ifndef NAME
#define NAME "mine.second-1+x"
#endif
#ifndef KERNEL_BYTES
#define KERNEL_BYTES sizeof(smla_kernel)
#endif
#ifndef SUPPORTS
#define SUPPORTS supports
#endif
#ifndef ABI
#define ABI SMLA_ABI_VERSION
#endif
#ifndef LIBRARY_BYTES
#define LIBRARY_BYTES sizeof(smla_library)
#endif
#ifndef NUM_KERNELS
#define NUM_KERNELS 2
#endif
#ifndef DEVICE
#define DEVICE SMLA_DEVICE_CPU
#endif

/* The first ends with `launch`: last_error and splits_used lie beyond its size and must not be read. */
static const smla_kernel first = {offsetof(smla_kernel, last_error), SMLA_DEVICE_CPU, "mine_first", "declines everything", NULL, NULL, supports, workspace_bytes, NULL, launch, (void (*)(const smla_kernel*, char*, uint64_t))1, NULL};
static const smla_kernel second = {KERNEL_BYTES, DEVICE, NAME, "declines everything too", NULL, contract, SUPPORTS, workspace_bytes, NULL, launch, NULL, NULL};
static const smla_kernel* const kernels[] = {
    &first,
#ifdef NULL_KERNEL
    NULL,
#else
    &second,
#endif
};
static const smla_library library = {ABI, LIBRARY_BYTES, NUM_KERNELS, 0, kernels};

#ifdef NULL_LIBRARY
SMLA_EXPORT const smla_library* smla_get_library(void) { return NULL; }
#elif !defined(NO_SYMBOL)
SMLA_EXPORT const smla_library* smla_get_library(void) { return &library; }
#else
SMLA_EXPORT const smla_library* smla_get_libary(void) { return &library; }
#endif
