/* A device of a fixed size, preloaded into a process (LD_PRELOAD): it counts what is allocated and refuses the rest.

Counted is what torch's CPU allocator asks for (libc10, always in aligned blocks), in the bytes that it asks for: tensors
and the scratch memory that kernels get from it. As on an accelerator, code that libraries make and buffers that they
keep for themselves are not. Nothing in here knows how memory is predicted. */

#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SLOT_BITS 20
#define SLOTS ((size_t)1 << SLOT_BITS)
#define GONE ((void *)1)
#define ALIGNMENT 64 /* the least that torch asks for */

extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static struct slot { void *block; size_t bytes; } slots[SLOTS]; /* a hash table with open addressing */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t live, peak, limit = SIZE_MAX, refusals;

static size_t first_slot(void *block)
{
    return ((uintptr_t)block >> 4) * 0x9E3779B97F4A7C15u >> (64 - SLOT_BITS);
}

/* Where libc10 lies in memory; nowhere until the device is opened. */
static uintptr_t allocator_begins, allocator_ends;

static int find_allocator(struct dl_phdr_info *library, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (!strstr(library->dlpi_name, "libc10.")) return 0;
    for (int at = 0; at < library->dlpi_phnum; at++)
        if (library->dlpi_phdr[at].p_type == PT_LOAD && library->dlpi_phdr[at].p_flags & PF_X) {
            allocator_begins = library->dlpi_addr + library->dlpi_phdr[at].p_vaddr;
            allocator_ends = allocator_begins + library->dlpi_phdr[at].p_memsz;
        }
    return 1;
}

static int is_allocator(void *caller)
{
    return (uintptr_t)caller >= allocator_begins && (uintptr_t)caller < allocator_ends;
}

/* Counts bytes that are about to be allocated. 0 where there is no room for them. */
static int reserve(size_t bytes)
{
    pthread_mutex_lock(&lock);
    int fits = bytes <= limit && live <= limit - bytes;
    if (fits) {
        live += bytes;
        if (live > peak) peak = live;
    } else {
        refusals++;
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

/* A block whose bytes were reserved; without one they are given back. */
static void remember(void *block, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (block) {
        size_t at = first_slot(block);
        while (slots[at].block && slots[at].block != GONE) at = (at + 1) % SLOTS;
        slots[at] = (struct slot){block, bytes};
    } else {
        live -= bytes;
    }
    pthread_mutex_unlock(&lock);
}

/* A block is about to be freed. */
static void forget(void *block)
{
    if (!block || (uintptr_t)block % ALIGNMENT) return; /* nearly all blocks: they need no lock */
    pthread_mutex_lock(&lock);
    for (size_t at = first_slot(block); slots[at].block; at = (at + 1) % SLOTS)
        if (slots[at].block == block) {
            live -= slots[at].bytes;
            slots[at].block = slots[(at + 1) % SLOTS].block ? GONE : NULL;
            break;
        }
    pthread_mutex_unlock(&lock);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int counted = is_allocator(__builtin_return_address(0));
    if (counted && !reserve(bytes)) return ENOMEM;
    void *found = __libc_memalign(alignment, bytes);
    if (counted) remember(found, bytes);
    if (!found) return ENOMEM;
    *block = found;
    return 0;
}

void free(void *block)
{
    forget(block);
    __libc_free(block);
}

/* From here on there are `bytes` bytes for new blocks. 0 where torch isn't there yet: it is to be imported before. */
int device_open(size_t bytes)
{
    pthread_mutex_lock(&lock);
    limit = bytes;
    dl_iterate_phdr(find_allocator, NULL);
    pthread_mutex_unlock(&lock);
    return allocator_ends != 0;
}

/* The most bytes at one time since the device was opened. */
size_t device_peak(void) { return peak; }

/* How many tensors were refused since then. */
size_t device_refusals(void) { return refusals; }
