/* SPDX-License-Identifier: Apache-2.0 */
/* redis.c: keys in redis, by hiredis. A connection that broke is dialled anew at the next call, and
 * once within a call, for a server that was restarted closes it unasked. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include <hiredis/hiredis.h>

enum { REDIS_PORT = 6379, READ_BYTES = 16384 /* of hiredis, at a time, at most */ };

struct redis {
    redisContext *context; /* NULL: not connected */
    char *host;
    int port;
    uint64_t timeout_ms;
    struct timeval timeout; /* the same */
};

static void redis_close(void *client) {
    struct redis *redis = client;
    if (redis->context != NULL)
        redisFree(redis->context);
    free(redis->host);
    free(redis);
}

static void *redis_open(const char *target, uint64_t timeout_ms, char *why) {
    struct redis *redis = calloc(1, sizeof(*redis));
    if (redis == NULL || (redis->host = strdup(target)) == NULL) {
        free(redis);
        snprintf(why, STORE_WHY, "out of memory");
        return NULL;
    }
    redis->timeout_ms = timeout_ms;
    redis->timeout.tv_sec = (time_t)(timeout_ms / 1000);
    redis->timeout.tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000);
    redis->port = REDIS_PORT;
    char *slash = strchr(redis->host, '/');
    if (slash != NULL)
        *slash = '\0';
    char *bracket = strchr(redis->host, ']'), *colon = strrchr(redis->host, ':');
    if (colon != NULL && (bracket != NULL ? colon > bracket : strchr(redis->host, ':') == colon)) {
        redis->port = atoi(colon + 1);
        *colon = '\0';
    }
    if (bracket != NULL && redis->host[0] == '[') { /* hiredis wants an IPv6 address bare */
        *bracket = '\0';
        memmove(redis->host, redis->host + 1, strlen(redis->host));
    }
    if (*redis->host != '\0' && redis->port > 0 && redis->port < 65536)
        return redis;
    snprintf(why, STORE_WHY, "redis: \"%.100s\" is no host and port", target);
    redis_close(redis);
    return NULL;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- one command ------------------------------------------------------------ */

/* Of the connection. The time is the whole answer's, and its length has a bound: hiredis knows a
 * time-out of each read alone. */
struct answer {
    uint64_t end_ms;
    size_t bytes;
};

/* Sleeps until there is something to do; false: the time is over. */
static bool await(const redisContext *context, bool written, const struct answer *answer) {
    struct pollfd poll_fd = {.fd = context->fd, .events = written ? POLLIN : POLLIN | POLLOUT};
    uint64_t now = now_ms();
    if (now >= answer->end_ms)
        return false;
    int rc = poll(&poll_fd, 1, (int)(answer->end_ms - now));
    return rc > 0 || (rc < 0 && errno == EINTR);
}

/* Reads the bytes that are there; false: they are too many, or the connection failed. */
static bool take(redisContext *context, struct answer *answer) {
    int there = 0;
    if (ioctl(context->fd, FIONREAD, &there) == 0 && there > 0)
        answer->bytes += there < READ_BYTES ? (size_t)there : READ_BYTES;
    return answer->bytes <= ANSWER_BYTES_MAX && redisBufferRead(context) == REDIS_OK;
}

/* NULL: the connection is of no use any more. */
static redisReply *speak(struct redis *redis, uint64_t end_ms, int count, const char **words,
                         char *why) {
    redisContext *context = redis->context;
    struct answer answer = {end_ms, 0};
    void *reply = NULL;
    int written = 0; /* all of it */
    bool in_time = true;
    bool good = redisAppendCommandArgv(context, count, words, NULL) == REDIS_OK;
    while (good && reply == NULL) {
        good = written || redisBufferWrite(context, &written) == REDIS_OK;
        good = good && (in_time = await(context, written, &answer)) && take(context, &answer) &&
               redisGetReply(context, &reply) == REDIS_OK;
    }
    if (reply != NULL)
        return reply;
    snprintf(why, STORE_WHY, "redis at %.100s:%d: %.100s", redis->host, redis->port,
             !in_time                          ? "it has not answered in time"
             : answer.bytes > ANSWER_BYTES_MAX ? "its answer is too long"
                                               : context->errstr);
    return NULL;
}

/* ---- the connection ----------------------------------------------------------- */

/* A first command on a new connection. */
static bool introduce(struct redis *redis, uint64_t end_ms, int count, const char **words,
                      char *why) {
    redisReply *reply = speak(redis, end_ms, count, words, why);
    bool good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply != NULL && !good)
        snprintf(why, STORE_WHY, "redis at %.100s refuses %s: %.100s", redis->host, words[0],
                 reply->str);
    freeReplyObject(reply);
    return good;
}

static bool introduce_all(struct redis *redis, uint64_t end_ms, char *why) {
    const char *user = getenv("MC_REDIS_USERNAME"), *password = getenv("MC_REDIS_PASSWORD");
    const char *index = getenv("MC_REDIS_DB_INDEX");
    bool with_user = user != NULL && *user != '\0';
    char number[16];
    if (password != NULL && *password != '\0' &&
        !introduce(redis, end_ms, with_user ? 3 : 2,
                   with_user ? (const char *[]){"AUTH", user, password}
                             : (const char *[]){"AUTH", password, NULL},
                   why))
        return false;
    if (index == NULL || atoi(index) <= 0)
        return true;
    snprintf(number, sizeof(number), "%d", atoi(index));
    return introduce(redis, end_ms, 2, (const char *[]){"SELECT", number}, why);
}

static void hang_up(struct redis *redis) {
    if (redis->context != NULL)
        redisFree(redis->context);
    redis->context = NULL;
}

static bool dial(struct redis *redis, uint64_t end_ms, char *why) {
    redisContext *context = redisConnectWithTimeout(redis->host, redis->port, redis->timeout);
    redis->context = context;
    if (context == NULL || context->err != 0) {
        snprintf(why, STORE_WHY, "redis at %.100s:%d: %.100s", redis->host, redis->port,
                 context != NULL ? context->errstr : "out of memory");
    } else {
        int flags = fcntl(context->fd, F_GETFL);
        context->flags &= ~REDIS_BLOCK; /* it was, to connect */
        if (flags >= 0 && fcntl(context->fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
            introduce_all(redis, end_ms, why))
            return true;
    }
    hang_up(redis);
    return false;
}

static redisReply *ask(struct redis *redis, int count, const char **words, char *why) {
    uint64_t end_ms = now_ms() + redis->timeout_ms;
    for (int turn = 0; turn < 2; turn++) {
        bool is_old = redis->context != NULL;
        if (!is_old && !dial(redis, end_ms, why))
            return NULL;
        redisReply *reply = speak(redis, end_ms, count, words, why);
        if (reply != NULL)
            return reply;
        hang_up(redis);
        if (!is_old || now_ms() >= end_ms)
            return NULL;
    }
    return NULL;
}

/* hiredis writes with write(2), which raises SIGPIPE on a connection that is gone. It is held back
 * in this thread, and what of it came meanwhile is taken. */
static redisReply *ask_quietly(struct redis *redis, int count, const char **words, char *why) {
    sigset_t pipe, before, pending;
    struct timespec none = {0, 0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    redisReply *reply = ask(redis, count, words, why);
    if (!was_pending)
        sigtimedwait(&pipe, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reply;
}

/* *value_out may be NULL. */
static enum store_result call(void *client, int count, const char **words, char **value_out,
                              char *why) {
    redisReply *reply = ask_quietly(client, count, words, why);
    enum store_result result = STORE_OK;
    if (reply == NULL)
        return STORE_AWAY;
    if (reply->type == REDIS_REPLY_ERROR) {
        result = STORE_REFUSED;
        snprintf(why, STORE_WHY, "redis: %.200s", reply->str);
    } else if (value_out != NULL && reply->type != REDIS_REPLY_STRING) {
        result = STORE_MISSING;
        snprintf(why, STORE_WHY, "redis has no key %.100s", words[1]);
    } else if (value_out != NULL && (*value_out = strdup(reply->str)) == NULL) {
        result = STORE_AWAY;
        snprintf(why, STORE_WHY, "out of memory");
    }
    freeReplyObject(reply);
    return result;
}

static enum store_result redis_get(void *client, const char *key, char **value_out, char *why) {
    return call(client, 2, (const char *[]){"GET", key}, value_out, why);
}

static enum store_result redis_put(void *client, const char *key, const char *value, char *why) {
    return call(client, 3, (const char *[]){"SET", key, value}, NULL, why);
}

static enum store_result redis_remove(void *client, const char *key, char *why) {
    return call(client, 2, (const char *[]){"DEL", key}, NULL, why);
}

const struct store_kind store_redis = {.name = "redis",
                                       .open = redis_open,
                                       .close = redis_close,
                                       .get = redis_get,
                                       .put = redis_put,
                                       .remove = redis_remove};
