// SPDX-License-Identifier: Apache-2.0
#include "loader/hooks.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "loader/answers.h"

// The hooks themselves: ask for an answer with the caller's address as one argument more, return it
// or jump on with all arguments as they came.
#if defined(__x86_64__)
#define RY_HOOK(name, real, caller_register) \
  asm(".text\n"                              \
      ".hidden " #name                       \
      "\n"                                   \
      ".globl " #name                        \
      "\n"                                   \
      ".type " #name ", @function\n" #name   \
      ":\n"                                  \
      "  .cfi_startproc\n"                   \
      "  endbr64\n"                          \
      "  pushq %rdi\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"         \
      "  pushq %rsi\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"         \
      "  pushq %rdx\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"         \
      "  movq 24(%rsp), %" caller_register   \
      "\n"                                   \
      "  callq " #name                       \
      "_answer\n"                            \
      "  movq %rdx, %r11\n"                  \
      "  popq %rdx\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"        \
      "  popq %rsi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"        \
      "  popq %rdi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"        \
      "  testq %r11, %r11\n"                 \
      "  jz 1f\n"                            \
      "  retq\n"                             \
      "1: jmpq *" #real                      \
      "@GOTPCREL(%rip)\n"                    \
      "  .cfi_endproc\n"                     \
      ".size " #name ", .-" #name "\n")
#define RY_SECOND "rdx"
#define RY_THIRD "rcx"
#elif defined(__aarch64__)
#define RY_HOOK(name, real, caller_register) \
  asm(".text\n"                              \
      ".hidden " #name                       \
      "\n"                                   \
      ".globl " #name                        \
      "\n"                                   \
      ".type " #name ", %function\n" #name   \
      ":\n"                                  \
      "  .cfi_startproc\n"                   \
      "  hint #34\n"                         \
      "  stp x29, x30, [sp, #-48]!\n"        \
      "  .cfi_def_cfa_offset 48\n"           \
      "  .cfi_offset 29, -48\n"              \
      "  .cfi_offset 30, -40\n"              \
      "  stp x0, x1, [sp, #16]\n"            \
      "  str x2, [sp, #32]\n"                \
      "  mov " caller_register               \
      ", x30\n"                              \
      "  bl " #name                          \
      "_answer\n"                            \
      "  mov x9, x1\n"                       \
      "  mov x10, x0\n"                      \
      "  ldp x0, x1, [sp, #16]\n"            \
      "  ldr x2, [sp, #32]\n"                \
      "  ldp x29, x30, [sp], #48\n"          \
      "  .cfi_restore 29\n"                  \
      "  .cfi_restore 30\n"                  \
      "  .cfi_def_cfa_offset 0\n"            \
      "  cbz x9, 1f\n"                       \
      "  mov x0, x10\n"                      \
      "  ret\n"                              \
      "1: adrp x16, :got:" #real             \
      "\n"                                   \
      "  ldr x16, [x16, #:got_lo12:" #real   \
      "]\n"                                  \
      "  br x16\n"                           \
      "  .cfi_endproc\n"                     \
      ".size " #name ", .-" #name "\n")
#define RY_SECOND "x2"
#define RY_THIRD "x3"
#endif

extern "C" {
void ry_dlopen(void);
void ry_dlmopen(void);
void ry_dlsym(void);
void ry_dlvsym(void);
}

RY_HOOK(ry_dlopen, dlopen, RY_SECOND);
RY_HOOK(ry_dlmopen, dlmopen, RY_THIRD);
RY_HOOK(ry_dlsym, dlsym, RY_SECOND);
RY_HOOK(ry_dlvsym, dlvsym, RY_THIRD);

using railyard::loader::Answer;

// What the code above calls.
extern "C" {
[[gnu::visibility("hidden"), gnu::used]] Answer ry_dlopen_answer(const char* file, int mode,
                                                                 const void* caller);
[[gnu::visibility("hidden"), gnu::used]] Answer ry_dlmopen_answer(Lmid_t, const char* file,
                                                                  int mode, const void* caller);
[[gnu::visibility("hidden"), gnu::used]] Answer ry_dlsym_answer(void* handle, const char* name,
                                                                const void* caller);
[[gnu::visibility("hidden"), gnu::used]] Answer ry_dlvsym_answer(void* handle, const char* name,
                                                                 const char* version,
                                                                 const void* caller);

Answer ry_dlopen_answer(const char* file, int mode, const void* caller) {
  return railyard::loader::answer_dlopen(file, mode, caller);
}
Answer ry_dlmopen_answer(Lmid_t, const char*, int, const void*) {
  return railyard::loader::answer_later();
}
Answer ry_dlsym_answer(void* handle, const char* name, const void* caller) {
  return railyard::loader::answer_dlsym(handle, name, caller);
}
Answer ry_dlvsym_answer(void* handle, const char* name, const char*, const void* caller) {
  return railyard::loader::answer_dlsym(handle, name, caller);
}
}

namespace railyard::loader {

const Hook* hook_named(const char* name) {
  static const Hook hooks[] = {
      {"dlopen", reinterpret_cast<const void*>(&ry_dlopen), reinterpret_cast<const void*>(&dlopen)},
      {"dlmopen", reinterpret_cast<const void*>(&ry_dlmopen),
       reinterpret_cast<const void*>(&dlmopen)},
      {"dlsym", reinterpret_cast<const void*>(&ry_dlsym), reinterpret_cast<const void*>(&dlsym)},
      {"dlvsym", reinterpret_cast<const void*>(&ry_dlvsym), reinterpret_cast<const void*>(&dlvsym)},
  };
  if (name[0] != 'd' || name[1] != 'l') return nullptr;
  for (const Hook& hook : hooks) {
    if (std::strcmp(hook.name, name) == 0) return &hook;
  }
  return nullptr;
}

}  // namespace railyard::loader
