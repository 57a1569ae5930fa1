/* A stand-in for libcuda.so.1 on the cards of nvml_standin.c: what tests/gpu/run.sh and `gpuqueued init` need of the
 * driver, so that both are tested where there is no GPU. VRAM is taken in the cards' simdir, as simjob takes it.
 * GQ_CUDA_STANDIN_CONTEXT: MiB that a context takes. GQ_CUDA_STANDIN_INIT: what cuInit answers, or "hang".
 *
 * With CUDA_DEVICE_ORDER=PCI_BUS_ID devices count by bus id, else against NVML's order: CUDA promises nothing.
 * CUDA_VISIBLE_DEVICES holds indexes or UUIDs.
 */
#define _GNU_SOURCE
#include "nvml_standin.c"
#include <unistd.h>

enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101 };

static Card *visible[MAX_CARDS];
static int visible_count;
static int current;
static unsigned long long held_mib[MAX_CARDS];

static int by_bus(const void *left, const void *right)
{
    return strcmp((*(Card *const *)left)->bus, (*(Card *const *)right)->bus);
}

static int see(void)
{
    Card *order[MAX_CARDS];
    const char *rule = getenv("CUDA_DEVICE_ORDER"), *list = getenv("CUDA_VISIBLE_DEVICES");
    char words[1024], *rest = words, *word;
    if (read_world()) return CUDA_NO_DEVICE;
    for (int i = 0; i < world.card_count; i++) order[i] = &world.cards[world.card_count - 1 - i];
    if (rule && !strcmp(rule, "PCI_BUS_ID")) qsort(order, (size_t)world.card_count, sizeof *order, by_bus);
    visible_count = 0;
    if (!list) {
        memcpy(visible, order, sizeof visible);
        visible_count = world.card_count;
    } else {
        snprintf(words, sizeof words, "%s", list);
        while ((word = strsep(&rest, ","))) {
            Card *named = NULL;
            char *end;
            long index = strtol(word, &end, 10);
            if (*word && !*end && index >= 0 && index < world.card_count) named = order[index];
            for (int i = 0; *word && i < world.card_count; i++)
                if (!strcmp(order[i]->uuid, word)) named = order[i];
            if (!named) break;
            visible[visible_count++] = named;
        }
    }
    return visible_count ? SUCCESS : CUDA_NO_DEVICE;
}

static int take(unsigned long long mib);

int cuInit(unsigned flags)
{
    const char *told = getenv("GQ_CUDA_STANDIN_INIT");
    (void)flags;
    if (told && !strcmp(told, "hang")) for (;;) pause();
    return told ? atoi(told) : see();
}

int cuDeviceGet(int *device, int number)
{
    *device = number;
    return number < visible_count ? SUCCESS : CUDA_INVALID_DEVICE;
}

int cuDeviceGetCount(int *count)
{
    *count = visible_count;
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *text, int length, int device)
{
    if (device >= visible_count) return CUDA_INVALID_DEVICE;
    snprintf(text, (size_t)length, "%s", visible[device]->bus + 4); /* CUDA writes a domain of four digits */
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device >= visible_count) return CUDA_INVALID_DEVICE;
    const char *mib = getenv("GQ_CUDA_STANDIN_CONTEXT");
    current = device;
    *context = &current;
    return mib ? take((unsigned long long)atoi(mib)) : SUCCESS;
}

int cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t size)
{
    (void)pointer; (void)value; (void)size;
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int code = see();
    if (code) return code;
    *total_bytes = (visible[current]->total - visible[current]->reserved) * MIB;
    *free_bytes = *total_bytes - used_mib(visible[current]) * MIB;
    return SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t size)
{
    size_t free_bytes, total_bytes;
    int code = cuMemGetInfo_v2(&free_bytes, &total_bytes);
    if (code) return code;
    if (size > free_bytes) return CUDA_OUT_OF_MEMORY;
    *pointer = 4096;
    return take(size / MIB);
}

static int take(unsigned long long mib)
{
    char path[8192], state;
    unsigned long long ticks = 0;
    Card *card = visible[current];
    held_mib[current] += mib;
    read_stat((unsigned)getpid(), &state, &ticks);
    snprintf(path, sizeof path, "%s/use/%d.%llu.%s", card->simdir, getpid(), ticks, card->uuid);
    FILE *file = fopen(path, "w");
    if (!file) return CUDA_OUT_OF_MEMORY;
    fprintf(file, "%llu 50\n", held_mib[current]);
    fclose(file);
    return SUCCESS;
}
