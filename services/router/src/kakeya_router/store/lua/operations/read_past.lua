-- Reads a session as of one moment, with what its journal holds of an earlier one.
-- of a session
-- arg length
-- returns {record, tokens, digest}: those before that length, from the record's journal_start on, and the digest of
-- the history there ('': not known)
local start = tonumber(redis.call('HGET', key.session, 'journal_start') or 0)
local num_tokens = arg.length - start
local tokens = num_tokens > 0 and redis.call('GETRANGE', key.journal, 0, 4 * num_tokens - 1) or ''
return {redis.call('HGETALL', key.session), tokens, digest_at(read_journal(), tonumber(arg.length)) or ''}
