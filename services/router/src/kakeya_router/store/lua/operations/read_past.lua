-- Reads a session as of one moment, with what its journal holds of an earlier one.
-- of a session
-- arg length
-- returns {record, tokens, digest}: those before that length, from the record's journal_start on, and the digest of
-- the history there ('': not known)
local start = tonumber(redis.call('HGET', key.session, 'journal_start') or 0)
local length = tonumber(arg.length)
return {redis.call('HGETALL', key.session), journaled(start, start, length), digest_at(read_journal(), length) or ''}
