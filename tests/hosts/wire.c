/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: a cable between two network namespaces, played by a program.
 *
 * Each namespace gets a tap interface, and this program carries the frames from one to the other.
 * On the way it loses, delays, reorders and repeats some, if it is told to, for kernels whose own
 * emulation (netem) is missing. Every direction has these parts, in this order:
 *
 *  - the contact: a cable that is cut loses everything, and with it what was on its way;
 *  - the loss;
 *  - the rate: a line that is busy makes frames wait, and loses those that find too many waiting;
 *  - the delay: in order, whatever the jitter is;
 *  - the reordering, at the far end: a frame is held until some of those behind it have passed, or
 *    until nothing more comes for a while;
 *  - the repetition.
 *
 * Where nothing is set nothing is lost: a direction whose memory is full is not read until there is
 * room, and the frames wait in the interface, whose queue is longer than what sockets have in
 * flight. One thread, which sleeps when no frame is due. Chance is drawn from a seed.
 *
 * Commands are lines of standard input, each is answered by "ok" when it is done; `usage` has them.
 * The wire ends with its input, and the interfaces with the wire. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SIDES = 2,
    FRAME_MAX = 65535 + 18,
    MTU_MAX = 65521, /* of a tap */
    READS_MAX = 64,  /* of a direction, before the other one's turn */
    HELD_MAX = 64,
    HELD_BACK_BY = 6, /* frames, at most */
    QUEUE_OF_INTERFACE = 50000,
    COMMAND_MAX = 256,
};
#define HELD_BACK_NS   UINT64_C(20000000)
#define KEPT_BYTES_MAX (UINT64_C(64) << 20)
#define WAITING_BYTES  (UINT64_C(1) << 20) /* for a line that is busy */
#define NEVER          UINT64_MAX
#define NS_PER_S       UINT64_C(1000000000)
#define PER_FRAME      64 /* of malloc(3) and of struct frame, about */

static const char usage[] = "usage: wire [--mtu N] [--seed N] NETNS INTERFACE ADDRESS/PREFIX NETNS "
                            "INTERFACE ADDRESS/PREFIX\n"
                            "commands:\n"
                            "  loss PERCENT        frames that are lost\n"
                            "  delay US [JITTER]   each way, and how much more or less\n"
                            "  reorder PERCENT     frames that some of those behind them overtake\n"
                            "  duplicate PERCENT   frames that arrive twice\n"
                            "  rate BYTES          of a second, each way; 0: as fast as it goes\n"
                            "  cut, join           the cable out, and in again\n"
                            "  clear               all as it was in the beginning\n"
                            "  stats               counts of frames, a line each way\n"
                            "  end\n";

struct frame {
    struct frame *next;
    uint64_t due_ns;
    uint32_t to_pass; /* frames that have to pass before it, of those held back */
    uint32_t length;
    uint8_t bytes[];
};

struct counts {
    uint64_t passed, lost, reordered, duplicated, overflowed, cut;
};

/* From one side to the other. */
struct direction {
    int from, to;
    struct frame *first, **last; /* on the way, in order */
    struct frame *held;          /* held back, oldest first */
    uint32_t held_count;
    uint64_t kept_bytes;
    uint64_t line_free_ns; /* the rate */
    uint64_t last_due_ns;
    struct counts counts;
};

struct side {
    const char *netns, *interface, *address;
};

/* Chances are parts of 2^32. */
struct ills {
    uint64_t loss, reorder, duplicate;
    uint64_t delay_ns, jitter_ns;
    uint64_t rate;
    bool is_cut;
};

static struct direction directions[SIDES];
static struct ills ills;
static uint64_t seed = 1;
static int mtu = 65000;

static _Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void give_up(const char *format, ...) {
    va_list arguments;

    fflush(stdout);
    va_start(arguments, format);
    fputs("wire: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* splitmix64 */
static uint64_t draw(void) {
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool happens(uint64_t chance) {
    return chance != 0 && draw() >> 32 < chance;
}

/* ---- the far end ---- */

/* An interface that is down takes nothing; that loses the frame, as it would elsewhere. */
static bool give(const struct direction *way, const uint8_t *bytes, uint32_t length) {
    for (;;) {
        if (write(way->to, bytes, length) >= 0)
            return true;
        if (errno == EBADFD || errno == EBADF)
            give_up("an interface is gone");
        if (errno != EINTR)
            return false;
    }
}

static void deliver_one(struct direction *way, const uint8_t *bytes, uint32_t length) {
    if (!give(way, bytes, length)) {
        way->counts.lost++;
        return;
    }
    way->counts.passed++;
    if (happens(ills.duplicate) && give(way, bytes, length))
        way->counts.duplicated++;
}

static void forget(struct direction *way, struct frame *frame) {
    way->kept_bytes -= frame->length + PER_FRAME;
    free(frame);
}

static struct frame *keep(struct direction *way, const uint8_t *bytes, uint32_t length) {
    struct frame *frame = malloc(sizeof *frame + length);

    if (frame == NULL)
        give_up("no memory");
    *frame = (struct frame){.length = length};
    memcpy(frame->bytes, bytes, length);
    way->kept_bytes += length + PER_FRAME;
    return frame;
}

/* Packets held back whose time has come, or all whom enough have overtaken. */
static void deliver_held(struct direction *way, bool one_passed, uint64_t now) {
    struct frame **at = &way->held;

    while (*at != NULL) {
        struct frame *frame = *at;
        if (one_passed && frame->to_pass > 0)
            frame->to_pass--;
        if (frame->to_pass > 0 && frame->due_ns > now) {
            at = &frame->next;
            continue;
        }
        *at = frame->next;
        way->held_count--;
        deliver_one(way, frame->bytes, frame->length);
        forget(way, frame);
    }
}

static void hold_back(struct direction *way, struct frame *frame, uint64_t now) {
    struct frame **at = &way->held;

    while (*at != NULL)
        at = &(*at)->next;
    frame->next = NULL;
    frame->due_ns = now + HELD_BACK_NS;
    frame->to_pass = 1 + (uint32_t)(draw() % HELD_BACK_BY);
    *at = frame;
    way->held_count++;
    way->counts.reordered++;
}

static bool is_overtaken(const struct direction *way) {
    return way->held_count < HELD_MAX && happens(ills.reorder);
}

static void arrive(struct direction *way, const uint8_t *bytes, uint32_t length, uint64_t now) {
    deliver_one(way, bytes, length);
    if (way->held != NULL)
        deliver_held(way, true, now);
}

/* ---- on the way ---- */

static void deliver_due(struct direction *way, uint64_t now) {
    while (way->first != NULL && way->first->due_ns <= now) {
        struct frame *frame = way->first;
        way->first = frame->next;
        if (way->first == NULL)
            way->last = &way->first;
        if (is_overtaken(way)) {
            hold_back(way, frame, now);
        } else {
            arrive(way, frame->bytes, frame->length, now);
            forget(way, frame);
        }
    }
    deliver_held(way, false, now);
}

/* When the frame is at the far end; NEVER: it is lost. */
static uint64_t due_of(struct direction *way, uint32_t length, uint64_t now) {
    uint64_t due = now;

    if (ills.is_cut) {
        way->counts.cut++;
        return NEVER;
    }
    if (happens(ills.loss)) {
        way->counts.lost++;
        return NEVER;
    }
    if (ills.rate != 0) {
        uint64_t line = way->line_free_ns > now ? way->line_free_ns : now;
        if ((double)(line - now) * (double)ills.rate / (double)NS_PER_S > (double)WAITING_BYTES) {
            way->counts.overflowed++;
            return NEVER;
        }
        due = way->line_free_ns = line + length * NS_PER_S / ills.rate;
    }
    due += ills.delay_ns;
    if (ills.jitter_ns != 0)
        due += draw() % (2 * ills.jitter_ns + 1) - ills.jitter_ns;
    if (due < way->last_due_ns)
        due = way->last_due_ns;
    return way->last_due_ns = due;
}

static void take(struct direction *way, const uint8_t *bytes, uint32_t length, uint64_t now) {
    uint64_t due = due_of(way, length, now);

    if (due == NEVER)
        return;
    bool is_next = way->first == NULL && due <= now;
    if (is_next && !is_overtaken(way)) {
        arrive(way, bytes, length, now);
        return;
    }
    struct frame *frame = keep(way, bytes, length);
    if (is_next) {
        hold_back(way, frame, now);
        return;
    }
    frame->due_ns = due;
    *way->last = frame;
    way->last = &frame->next;
}

static bool has_room(const struct direction *way) {
    return way->kept_bytes < KEPT_BYTES_MAX;
}

static void carry(struct direction *way) {
    static uint8_t bytes[FRAME_MAX];

    for (int i = 0; i < READS_MAX && has_room(way); i++) {
        ssize_t length = read(way->from, bytes, sizeof bytes);
        if (length > 0) {
            take(way, bytes, (uint32_t)length, now_ns());
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            give_up("an interface is gone: %s", strerror(errno));
        }
    }
}

static void lose_list(struct direction *way, struct frame *frame) {
    while (frame != NULL) {
        struct frame *next = frame->next;
        way->counts.cut++;
        forget(way, frame);
        frame = next;
    }
}

static void cut(void) {
    ills.is_cut = true;
    for (int i = 0; i < SIDES; i++) {
        struct direction *way = &directions[i];
        lose_list(way, way->first);
        lose_list(way, way->held);
        way->first = way->held = NULL;
        way->last = &way->first;
        way->held_count = 0;
        way->line_free_ns = way->last_due_ns = 0;
    }
}

static uint64_t next_due(const struct direction *way) {
    uint64_t due = way->first != NULL ? way->first->due_ns : NEVER;

    for (const struct frame *frame = way->held; frame != NULL; frame = frame->next) {
        if (frame->due_ns < due)
            due = frame->due_ns;
    }
    return due;
}

/* ---- commands ---- */

static void print_stats(void) {
    for (int i = 0; i < SIDES; i++) {
        const struct counts *counts = &directions[i].counts;
        printf(
            "%c: passed %llu lost %llu reordered %llu duplicated %llu overflowed %llu cut %llu\n",
            'a' + i, (unsigned long long)counts->passed, (unsigned long long)counts->lost,
            (unsigned long long)counts->reordered, (unsigned long long)counts->duplicated,
            (unsigned long long)counts->overflowed, (unsigned long long)counts->cut);
    }
}

/* A number from 0 to max at *text, which is then behind it. */
static double number(const char **text, double max, const char *line) {
    char *end;
    double value = strtod(*text, &end);

    if (end == *text || !(value >= 0 && value <= max))
        give_up("not a number from 0 to %.0f: %s", max, line);
    *text = end;
    return value;
}

static uint64_t chance_of(const char **text, const char *line) {
    return (uint64_t)(number(text, 100, line) / 100 * 4294967296.0);
}

static void set_delay(const char **text, const char *line) {
    ills.delay_ns = (uint64_t)(number(text, 10e6, line) * 1e3);
    *text += strspn(*text, " ");
    ills.jitter_ns = **text != '\0' ? (uint64_t)(number(text, 10e6, line) * 1e3) : 0;
    if (ills.jitter_ns > ills.delay_ns)
        give_up("more jitter than delay: %s", line);
}

/* Whether the wire goes on. */
static bool obey(const char *line) {
    size_t length = strcspn(line, " ");
    const char *rest = line + length;

#define IS(name) (length == strlen(name) && strncmp(line, name, length) == 0)
    if (IS("loss"))
        ills.loss = chance_of(&rest, line);
    else if (IS("delay"))
        set_delay(&rest, line);
    else if (IS("reorder"))
        ills.reorder = chance_of(&rest, line);
    else if (IS("duplicate"))
        ills.duplicate = chance_of(&rest, line);
    else if (IS("rate"))
        ills.rate = (uint64_t)number(&rest, 1e12, line);
    else if (IS("cut"))
        cut();
    else if (IS("join"))
        ills.is_cut = false;
    else if (IS("clear"))
        ills = (struct ills){0};
    else if (IS("stats"))
        print_stats();
    else if (!IS("end"))
        give_up("no such command: %s", line);
    if (*rest != '\0')
        give_up("more than the command takes: %s", line);
    puts("ok");
    fflush(stdout);
    return !IS("end");
#undef IS
}

/* What is there of standard input; whether the wire goes on. */
static bool listen_to(void) {
    static char line[COMMAND_MAX];
    static size_t used;
    ssize_t got = read(STDIN_FILENO, line + used, sizeof line - 1 - used);
    bool goes_on = true;
    char *end;

    if (got < 0 && errno == EINTR)
        return true;
    if (got <= 0)
        return false;
    used += (size_t)got;
    line[used] = '\0';
    while (goes_on && (end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        goes_on = obey(line);
        used -= (size_t)(end + 1 - line);
        memmove(line, end + 1, used + 1);
    }
    if (used == sizeof line - 1)
        give_up("a command that is too long");
    return goes_on;
}

/* ---- interfaces ---- */

static void enter(const char *netns) {
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s%s", strchr(netns, '/') == NULL ? "/run/netns/" : "", netns);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        give_up("no namespace %s: %s", path, strerror(errno));
    if (setns(fd, CLONE_NEWNET) != 0)
        give_up("cannot enter namespace %s: %s", path, strerror(errno));
    close(fd);
}

static void add_attribute(struct nlmsghdr *header, unsigned short type, const void *bytes,
                          size_t length) {
    struct rtattr *attribute = (void *)((char *)header + NLMSG_ALIGN(header->nlmsg_len));

    attribute->rta_type = type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(length);
    memcpy(RTA_DATA(attribute), bytes, length);
    header->nlmsg_len = NLMSG_ALIGN(header->nlmsg_len) + (uint32_t)RTA_LENGTH(length);
}

/* The address is of the interface from now on, without asking whether another one has it. */
static void set_address(const struct side *side, int index) {
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg message;
        char attributes[128];
    } request = {
        .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifaddrmsg)),
                   .nlmsg_type = RTM_NEWADDR,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .message = {.ifa_flags = IFA_F_NODAD, .ifa_index = (unsigned)index},
    };
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[1024];
    } answer;
    char text[INET6_ADDRSTRLEN + 8];
    uint8_t bytes[16];

    if (snprintf(text, sizeof text, "%s", side->address) >= (int)sizeof text)
        give_up("no IP address: %s", side->address);
    char *slash = strchr(text, '/');
    if (slash == NULL)
        give_up("no prefix: %s", side->address);
    *slash = '\0';
    bool is_v6 = strchr(text, ':') != NULL;
    int prefix = atoi(slash + 1);
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, text, bytes) != 1)
        give_up("no IP address: %s", side->address);
    if (prefix < 1 || prefix > (is_v6 ? 128 : 32))
        give_up("no prefix: %s", side->address);
    request.message.ifa_family = is_v6 ? AF_INET6 : AF_INET;
    request.message.ifa_prefixlen = (uint8_t)prefix;
    add_attribute(&request.header, IFA_LOCAL, bytes, is_v6 ? 16 : 4);
    add_attribute(&request.header, IFA_ADDRESS, bytes, is_v6 ? 16 : 4);

    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &request, request.header.nlmsg_len, 0) < 0 ||
        recv(fd, &answer, sizeof answer, 0) < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
        give_up("netlink: %s", strerror(errno));
    if (answer.error.error != 0)
        give_up("cannot give %s to %s: %s", side->address, side->interface,
                strerror(-answer.error.error));
    close(fd);
}

/* The tap's descriptor. */
static int plug_in(const struct side *side) {
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};

    if (strlen(side->interface) >= IFNAMSIZ)
        give_up("too long for the name of an interface: %s", side->interface);
    enter(side->netns);
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0)
        give_up("/dev/net/tun: %s", strerror(errno));
    strcpy(request.ifr_name, side->interface);
    if (ioctl(tap, TUNSETIFF, &request) != 0)
        give_up("cannot make interface %s: %s", side->interface, strerror(errno));

    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_mtu = mtu;
    if (ioctl(control, SIOCSIFMTU, &request) != 0)
        give_up("cannot set the MTU of %s to %d: %s", side->interface, mtu, strerror(errno));
    request.ifr_qlen = QUEUE_OF_INTERFACE;
    if (ioctl(control, SIOCSIFTXQLEN, &request) != 0)
        give_up("cannot set the queue of %s: %s", side->interface, strerror(errno));
    if (ioctl(control, SIOCGIFINDEX, &request) != 0)
        give_up("no interface %s: %s", side->interface, strerror(errno));
    int index = request.ifr_ifindex;
    if (ioctl(control, SIOCGIFFLAGS, &request) != 0)
        give_up("no interface %s: %s", side->interface, strerror(errno));
    request.ifr_flags |= IFF_UP;
    if (ioctl(control, SIOCSIFFLAGS, &request) != 0)
        give_up("cannot set %s up: %s", side->interface, strerror(errno));
    close(control);
    set_address(side, index);
    return tap;
}

/* ---- the wire ---- */

static void sleep_until_due(struct pollfd *fds) {
    uint64_t due = NEVER, now = now_ns();
    struct timespec left = {0};

    for (int i = 0; i < SIDES; i++) {
        uint64_t of_way = next_due(&directions[i]);
        due = of_way < due ? of_way : due;
        fds[i] = (struct pollfd){.fd = has_room(&directions[i]) ? directions[i].from : -1,
                                 .events = POLLIN};
    }
    fds[SIDES] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    if (due != NEVER && due > now) {
        left.tv_sec = (time_t)((due - now) / NS_PER_S);
        left.tv_nsec = (long)((due - now) % NS_PER_S);
    }
    if (ppoll(fds, SIDES + 1, due != NEVER ? &left : NULL, NULL) < 0 && errno != EINTR)
        give_up("poll: %s", strerror(errno));
}

static void play(void) {
    struct pollfd fds[SIDES + 1];

    for (;;) {
        sleep_until_due(fds);
        if (fds[SIDES].revents != 0 && !listen_to())
            return;
        for (int i = 0; i < SIDES; i++) {
            deliver_due(&directions[i], now_ns());
            if (fds[i].revents != 0)
                carry(&directions[i]);
        }
    }
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"mtu", required_argument, NULL, 'm'},
        {"seed", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'm')
            mtu = atoi(optarg);
        else if (option == 's')
            seed = strtoull(optarg, NULL, 0);
        else
            exit(2);
    }
    if (mtu < 1280 || mtu > MTU_MAX)
        give_up("an MTU is from 1280 to %d", MTU_MAX);
}

int main(int argc, char **argv) {
    int taps[SIDES];

    read_options(argc, argv);
    if (argc - optind != 3 * SIDES) {
        fputs(usage, stderr);
        return 2;
    }
    for (int i = 0; i < SIDES; i++) {
        char **words = argv + optind + 3 * i;
        taps[i] =
            plug_in(&(struct side){.netns = words[0], .interface = words[1], .address = words[2]});
    }
    for (int i = 0; i < SIDES; i++) {
        directions[i].from = taps[i];
        directions[i].to = taps[1 - i];
        directions[i].last = &directions[i].first;
    }
    puts("ready");
    fflush(stdout);
    play();
    return 0;
}
