-- Reads a session as of one moment, with what its journal holds of an earlier one.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, length
-- returns {record, tokens, digest} those before that length, from the record's journal_start on, and the digest of the
--         history there ('': not known)
local start = tonumber(redis.call('HGET', KEYS[1], 'journal_start') or 0)
local num_tokens = ARGV[2] - start
local tokens = num_tokens > 0 and redis.call('GETRANGE', KEYS[12], 0, 4 * num_tokens - 1) or ''
return {redis.call('HGETALL', KEYS[1]), tokens, digest_at(read_journal(), tonumber(ARGV[2])) or ''}
