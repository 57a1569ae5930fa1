/* A stand-in for libnvidia-ml.so.1, so that the real pynvml can be tested on machines without a GPU.
 *
 * It reads its cards from the file named by GQ_NVML_STANDIN at every call, so a test changes the world by
 * replacing the file (tests/nvml_standin.py writes it). One word and its values a line:
 *
 *   driver VERSION            what nvmlSystemGetDriverVersion says
 *   fault FUNCTION CODE       before the first card: that function fails on the node; below a card: on that card
 *   card UUID                 begins a card; NVML's order is the order in the file
 *   bus PCI_BUS_ID | minor N | name TEXT | total MIB | reserved MIB | used MIB (beyond the processes')
 *   temperature C | slowdown C | margin C | util PERCENT
 *   process PID MIB C|G|B     computes, draws or both; MIB "hidden:N": it holds N and the driver does not tell
 *   sample PID MICROSECONDS PERCENT
 *   simdir DIRECTORY          also what live processes hold there (gpuqueue/gpu/simdir.py)
 *
 * Compiled with -DSTANDIN_DRIVER="VERSION" it is the library of that driver: any other in the file is a mismatch.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, MISMATCH = 18 };
enum { MAX_CARDS = 16, MAX_ROWS = 128, MAX_FAULTS = 32 };

typedef struct { char function[64]; int code; } Fault;
typedef struct { unsigned pid; unsigned long long mib; int hidden; char kind; } Process;
typedef struct { unsigned pid; unsigned long long at_us; unsigned percent; } Sample;
typedef struct {
    char uuid[96], bus[32], name[96], simdir[4096];
    unsigned minor, util;
    unsigned long long total, reserved, used;
    int temperature, slowdown, margin;
    int process_count, sample_count, fault_count;
    Process processes[MAX_ROWS];
    Sample samples[MAX_ROWS];
    Fault faults[MAX_FAULTS];
} Card;
typedef struct {
    char driver[80];
    int card_count, fault_count;
    Card cards[MAX_CARDS];
    Fault faults[MAX_FAULTS];
} World;

static _Thread_local World world;
static int initialised;
static char handles[MAX_CARDS][96]; /* a device handle points to the UUID of its card */

/* ---- reading the file ---- */

/* State and start ticks (fields 3 and 22) of /proc/PID/stat: what makes a pid one process for good. */
static int read_stat(unsigned pid, char *state, unsigned long long *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *after = strrchr(text, ')');
    return after && sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                           state, start) == 2;
}

static int alive(unsigned pid, unsigned long long ticks)
{
    char state;
    unsigned long long start;
    return read_stat(pid, &state, &start) && start == ticks && state != 'Z' && state != 'X';
}

static void add_process(Card *card, unsigned pid, unsigned long long mib, int hidden, char kind)
{
    if (card->process_count < MAX_ROWS)
        card->processes[card->process_count++] = (Process){pid, mib, hidden, kind};
}

static void add_sample(Card *card, unsigned pid, unsigned long long at_us, unsigned percent)
{
    if (card->sample_count < MAX_ROWS)
        card->samples[card->sample_count++] = (Sample){pid, at_us, percent};
}

static void read_simdir(Card *card, const char *directory)
{
    char path[4096], uuid[96];
    unsigned pid, percent;
    unsigned long long ticks, mib;
    struct timeval now;
    struct dirent *entry;
    snprintf(path, sizeof path, "%s/use", directory);
    DIR *listing = opendir(path);
    if (!listing) return;
    gettimeofday(&now, NULL);
    while ((entry = readdir(listing))) {
        if (sscanf(entry->d_name, "%u.%llu.%95s", &pid, &ticks, uuid) != 3) continue;
        if (strcmp(uuid, card->uuid) || !alive(pid, ticks)) continue;
        snprintf(path, sizeof path, "%s/use/%s", directory, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%llu %u", &mib, &percent) == 2) {
            add_process(card, pid, mib, 0, 'C');
            add_sample(card, pid, now.tv_sec * 1000000ull + now.tv_usec, percent);
        }
        fclose(file);
    }
    closedir(listing);
}

static void read_card_line(Card *card, const char *word, char *value)
{
    unsigned pid, percent;
    unsigned long long number = strtoull(value, NULL, 10);
    char size[64], kind;
    if (!strcmp(word, "bus")) snprintf(card->bus, sizeof card->bus, "%s", value);
    else if (!strcmp(word, "name")) snprintf(card->name, sizeof card->name, "%s", value);
    else if (!strcmp(word, "minor")) card->minor = (unsigned)number;
    else if (!strcmp(word, "total")) card->total = number;
    else if (!strcmp(word, "reserved")) card->reserved = number;
    else if (!strcmp(word, "used")) card->used = number;
    else if (!strcmp(word, "util")) card->util = (unsigned)number;
    else if (!strcmp(word, "temperature")) card->temperature = atoi(value);
    else if (!strcmp(word, "slowdown")) card->slowdown = atoi(value);
    else if (!strcmp(word, "margin")) card->margin = atoi(value);
    else if (!strcmp(word, "simdir")) {
        snprintf(card->simdir, sizeof card->simdir, "%s", value);
        read_simdir(card, value);
    }
    else if (!strcmp(word, "process") && sscanf(value, "%u %63s %c", &pid, size, &kind) == 3) {
        int hidden = !strncmp(size, "hidden:", 7);
        add_process(card, pid, strtoull(hidden ? size + 7 : size, NULL, 10), hidden, kind);
    } else if (!strcmp(word, "sample") && sscanf(value, "%u %llu %u", &pid, &number, &percent) == 3)
        add_sample(card, pid, number, percent);
}

static int read_world(void)
{
    char line[4608], word[64];
    const char *path = getenv("GQ_NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    Card *card = NULL;
    memset(&world, 0, sizeof world);
    if (!file) return DRIVER_NOT_LOADED;
    while (fgets(line, sizeof line, file)) {
        int offset = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%63s %n", word, &offset) < 1) continue;
        char *value = line + offset;
        if (!strcmp(word, "driver")) snprintf(world.driver, sizeof world.driver, "%s", value);
        else if (!strcmp(word, "card") && world.card_count < MAX_CARDS) {
            card = &world.cards[world.card_count++];
            snprintf(card->uuid, sizeof card->uuid, "%s", value);
        } else if (!strcmp(word, "fault")) {
            int *count = card ? &card->fault_count : &world.fault_count;
            Fault *fault = (card ? card->faults : world.faults) + *count;
            if (*count < MAX_FAULTS && sscanf(value, "%63s %d", fault->function, &fault->code) == 2) ++*count;
        } else if (card) read_card_line(card, word, value);
    }
    fclose(file);
    return SUCCESS;
}

static int fault_of(const Fault *faults, int count, const char *function)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(faults[i].function, function)) return faults[i].code;
    return SUCCESS;
}

static int enter(const char *function)
{
    int code = read_world();
    if (code) return code;
    if (!initialised) return UNINITIALIZED;
    return fault_of(world.faults, world.fault_count, function);
}

/* Finds the card of a handle, or says what stands in the way. */
static int enter_card(const char *function, const void *handle, Card **card)
{
    int code = enter(function);
    if (code) return code;
    for (int i = 0; i < world.card_count; i++)
        if (!strcmp(world.cards[i].uuid, handle)) {
            *card = &world.cards[i];
            return fault_of((*card)->faults, (*card)->fault_count, function);
        }
    return GPU_IS_LOST;
}

static unsigned long long used_mib(const Card *card)
{
    unsigned long long sum = card->used;
    for (int i = 0; i < card->process_count; i++) sum += card->processes[i].mib;
    return sum;
}

/* ---- NVML ---- */

#define MIB (1024ull * 1024ull)
#define ENTER(handle) Card *card; int code = enter_card(__func__, handle, &card); if (code) return code
#define TEXT(buffer, length, value) snprintf(buffer, length, "%s", value)

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    int code = read_world();
    if (!code) code = fault_of(world.faults, world.fault_count, __func__);
#ifdef STANDIN_DRIVER
    if (!code && strcmp(world.driver, STANDIN_DRIVER)) code = MISMATCH;
#endif
    if (!code) initialised++;
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "stand-in error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    int code = enter(__func__);
    if (!code) TEXT(version, length, world.driver);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int code = enter(__func__);
    if (!code) *count = (unsigned)world.card_count;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    int code = enter(__func__);
    if (code) return code;
    if (index >= (unsigned)world.card_count) return INVALID_ARGUMENT;
    Card *card = &world.cards[index];
    for (int i = 0; i < MAX_CARDS; i++) {
        if (!handles[i][0]) TEXT(handles[i], sizeof handles[i], card->uuid);
        if (!strcmp(handles[i], card->uuid)) {
            *handle = handles[i];
            return fault_of(card->faults, card->fault_count, __func__);
        }
    }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    ENTER(handle);
    TEXT(uuid, length, card->uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length)
{
    ENTER(handle);
    TEXT(name, length, card->name);
    return SUCCESS;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci)
{
    ENTER(handle);
    memset(pci, 0, sizeof *pci);
    TEXT(pci->bus_id, sizeof pci->bus_id, card->bus);
    sscanf(card->bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
    ENTER(handle);
    *minor = card->minor;
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory)
{
    ENTER(handle);
    unsigned long long used = card->reserved + used_mib(card);
    *memory = (Memory){card->total * MIB, (card->total - used) * MIB, used * MIB};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory)
{
    ENTER(handle);
    unsigned long long used = used_mib(card);
    memory->total = card->total * MIB;
    memory->reserved = card->reserved * MIB;
    memory->used = used * MIB;
    memory->free = (card->total - card->reserved - used) * MIB;
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;

static int list_processes(const Card *card, char other_kind, unsigned *count, ProcessInfo *infos)
{
    unsigned listed = 0;
    for (int i = 0; i < card->process_count; i++) {
        const Process *process = &card->processes[i];
        if (process->kind == other_kind) continue;
        if (infos && listed < *count)
            infos[listed] = (ProcessInfo){process->pid, process->hidden ? UINT64_MAX : process->mib * MIB, ~0u, ~0u};
        listed++;
    }
    int enough = listed == 0 || (infos && listed <= *count);
    *count = listed;
    return enough ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *infos)
{
    ENTER(handle);
    return list_processes(card, 'G', count, infos);
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, ProcessInfo *infos)
{
    ENTER(handle);
    return list_processes(card, 'G', count, infos);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *infos)
{
    ENTER(handle);
    return list_processes(card, 'C', count, infos);
}

typedef struct { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; } ProcessSample;

int nvmlDeviceGetProcessUtilization(void *handle, ProcessSample *samples, unsigned *count, unsigned long long since_us)
{
    ENTER(handle);
    unsigned listed = 0;
    for (int i = 0; i < card->sample_count; i++) {
        const Sample *sample = &card->samples[i];
        if (sample->at_us <= since_us) continue;
        if (samples && listed < *count)
            samples[listed] = (ProcessSample){sample->pid, sample->at_us, sample->percent, 0, 0, 0};
        listed++;
    }
    if (!listed) return NOT_FOUND;
    int enough = samples && listed <= *count;
    *count = listed;
    return enough ? SUCCESS : INSUFFICIENT_SIZE;
}

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *utilization)
{
    ENTER(handle);
    *utilization = (Utilization){card->util, 0};
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *temperature)
{
    (void)sensor;
    ENTER(handle);
    *temperature = (unsigned)card->temperature;
    return SUCCESS;
}

typedef struct { unsigned version, sensor; int temperature; } Temperature;

int nvmlDeviceGetTemperatureV(void *handle, Temperature *temperature)
{
    ENTER(handle);
    temperature->temperature = card->temperature;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureThreshold(void *handle, unsigned threshold, unsigned *temperature)
{
    (void)threshold;
    ENTER(handle);
    if (!card->slowdown) return NOT_SUPPORTED;
    *temperature = (unsigned)card->slowdown;
    return SUCCESS;
}

typedef struct { unsigned version; int margin; } Margin;

int nvmlDeviceGetMarginTemperature(void *handle, Margin *margin)
{
    ENTER(handle);
    if (card->slowdown) return NOT_SUPPORTED; /* a card tells the one or the other */
    margin->margin = card->margin;
    return SUCCESS;
}
