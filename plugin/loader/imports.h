// SPDX-License-Identifier: Apache-2.0
//
// Replaces NCCL's functions in the import tables of all loaded objects, so that it does not matter
// how and when railyard was loaded: each slot gets the wrapper of the copy of NCCL it leads to.
// Slots of dlopen() and dlsym() get the hooks of loader/hooks.h, through which objects loaded later
// and functions that programs look up by name are found.
//
// Programs that look NCCL up by name keep the addresses in variables. What they found before
// railyard was loaded is replaced too, where it lies in a variable of a loaded object; addresses on
// the heap are not seen.
//
// Left alone: NCCL itself, railyard itself, and slots that lead anywhere else, such as into a layer
// that traces NCCL's calls. A weak reference to a function that its copy of NCCL lacks is null, as
// it would be without railyard.
#pragma once

namespace railyard::loader {

/// Looks at objects that have been loaded since the last time; cheap if there are none. Every
/// object is done once. Thread-safe, also against dlopen() and dlclose() in other threads, and from
/// within constructors.
void refresh_imports();

}  // namespace railyard::loader
