-- The journals of sessions, and the digests of their histories.

-- The digest of a history is two rests, see kakeya_shared/contract/history_digest.py: of each the prime, 2**32 modulo
-- it, and what takes that back.
local FIRST = {65431043, 41949501, 17901329}
local OTHER = {58560287, 20066345, 16218834}
local EMPTY_HISTORY = '0000000100000001'

local function rests(digest)
  return tonumber(string.sub(digest, 1, 8), 16), tonumber(string.sub(digest, 9), 16)
end

-- The digest of a history that tokens, of 4 bytes each, were added to; nil where it is not known.
local function extended_digest(digest, tokens)
  if not digest or tokens == '' then
    return digest
  end
  local rest, other = rests(digest)
  local prime, base, other_prime, other_base = FIRST[1], FIRST[2], OTHER[1], OTHER[2]
  for at = 1, #tokens, 4 do
    local token = struct.unpack('<I4', tokens, at)
    rest = (rest * base + token) % prime
    other = (other * other_base + token) % other_prime
  end
  return string.format('%08x%08x', rest, other)
end

-- The digest of a history as it was before its last tokens came.
local function digest_before(digest, tokens)
  if not digest or tokens == '' then
    return digest
  end
  local rest, other = rests(digest)
  for at = #tokens - 3, 1, -4 do
    local token = struct.unpack('<I4', tokens, at)
    rest = (rest - token) % FIRST[1] * FIRST[3] % FIRST[1]
    other = (other - token) % OTHER[1] * OTHER[3] % OTHER[1]
  end
  return string.format('%08x%08x', rest, other)
end

-- Of a history the tokens from one index to before another, where the journal begins at `first`; without a name of the
-- journal's key, of a session script's session.
local function journaled(first, start, stop, name)
  return stop > start and redis.call('GETRANGE', name or key.journal, 4 * (start - first), 4 * (stop - first) - 1) or ''
end

-- The journal of a session, without keys a session script's: its first index, its length, and the digests of the
-- history there, nil where they are not known; beside them the epoch of the session's lane. The record has the digests
-- with the lengths that they are of and the number of rewinds: an older router changes the journal and leaves them as
-- they are. A journal that is not as long as the record says (it was evicted, say) is torn: it holds nothing, and begins
-- where the history ends. A script reads it once, and hands on what it has read.
local function read_journal(session, name)
  local record = redis.call('HMGET', session or key.session,
    'journal_start', 'journal_length', 'journal_digests', 'num_rewinds', 'epoch')
  local first, length = tonumber(record[1] or 0), tonumber(record[2] or 0)
  local start, at_start, stop, at_end, num_rewinds =
    string.match(record[3] or '', '^(%d+) (%x*) (%d+) (%x+) (%d+)$')
  local journal = {recorded_first = first, num_rewinds = record[4] or '0', epoch = record[5]}
  if num_rewinds ~= journal.num_rewinds then
    start, at_start, stop, at_end = nil, nil, nil, nil
  end
  if redis.call('STRLEN', name or key.journal) ~= 4 * (length - first) then
    at_end = tonumber(stop) == length and at_end or nil
    journal.first, journal.length, journal.at_start, journal.at_end = length, length, at_end, at_end
    journal.is_torn = true
    return journal
  end
  stop = tonumber(stop or length)
  if stop < first or stop > length then
    at_end = nil
  end
  if first == 0 then
    at_start = EMPTY_HISTORY
    if not at_end then
      stop, at_end = 0, EMPTY_HISTORY
    end
  elseif tonumber(start) ~= first or at_start == '' then
    at_start = nil
  end
  journal.first, journal.length, journal.at_start = first, length, at_start
  journal.at_end = extended_digest(at_end, journaled(first, stop, length, name))
  return journal
end

-- Writes back what `read_journal` has read, as it is now; a new one, too, which has no rewinds.
local function write_journal(journal)
  local first, length = string.format('%.0f', journal.first), string.format('%.0f', journal.length)
  local digests = {first, journal.at_start or '', length, journal.at_end, journal.num_rewinds or '0'}
  redis.call('HSET', key.session,
    'journal_length', length, 'journal_digests', journal.at_end and table.concat(digests, ' ') or '')
  if journal.first ~= journal.recorded_first then
    redis.call('HSET', key.session, 'journal_start', first)
  end
end

-- The digest of a history at a length that its journal, as `read_journal` has read it, holds; nil: it is not known.
local function digest_at(journal, length, name)
  if length < journal.first or length > journal.length then
    return nil
  end
  return digest_before(journal.at_end, journaled(journal.first, length, journal.length, name))
end

-- Adds arg.tokens, of 4 bytes each, to the journal of a session script's session, which has been read; the first has the
-- history index arg.start. Those that are in it already, by an attempt whose answer was lost, are skipped; it may have
-- more. With the last token of an append (where the operation's ends; nil: it has none) the session remembers it, so
-- that its repetition is recognised.
-- Returns whether they follow what is in it; if not, nothing is changed.
local function extend_journal(journal, append_end)
  local start, tokens = tonumber(arg.start), arg.tokens
  local known = journal.length - start
  if known < 0 then
    return false
  end
  if known * 4 < #tokens then
    local new = string.sub(tokens, 4 * known + 1)
    if journal.is_torn then
      redis.call('DEL', key.journal)
      journal.is_torn = nil
    end
    redis.call('APPEND', key.journal, new)
    journal.length = start + #tokens / 4
    journal.at_end = extended_digest(journal.at_end, new)
    write_journal(journal)
  end
  if append_end and tonumber(append_end) == journal.length then
    local append = redis.call('HMGET', key.operation, 'start_length', 'append_digest')
    redis.call('HSET', key.session, 'append_start', append[1], 'append_end', append_end, 'append_digest', append[2])
  end
  return true
end

-- Makes a string of tokens all that a session script's journal holds.
local function keep_journaled(tokens)
  redis.call('DEL', key.journal)
  if tokens ~= '' then
    redis.call('SET', key.journal, tokens)
  end
end

-- Takes the tokens of a session script's history from a length on back, of which the digest may be known. What is being
-- written of them meanwhile is of no use.
local function cut_journal(length, digest)
  local journal = read_journal()
  journal.at_end = digest or digest_at(journal, length)
  keep_journaled(journaled(journal.first, journal.first, length))
  if length <= journal.first then
    journal.first, journal.at_start = length, journal.at_end
  end
  journal.length = length
  local had_true_tags = has_true_tags()
  local num_rewinds = redis.call('HINCRBY', key.session, 'num_rewinds', 1)
  journal.num_rewinds = string.format('%.0f', num_rewinds)
  if had_true_tags then
    cut_tags(length, num_rewinds)
  else
    forget_tags()
  end
  write_journal(journal)
  redis.call('HDEL', key.session, 'append_end')
end

-- Forgets the tokens of a session script's journal before a history index. Where a lane may be resumed there, the digest
-- is checked: if the two ends of the journal do not agree on it, a part of it is damaged, perhaps the one that goes, and
-- the digest counts as not known. That takes as long as there are tokens left.
local function trim_journal(start, is_checked)
  local journal = read_journal()
  if start <= journal.first then
    return
  end
  local rest = journaled(journal.first, start, journal.length)
  journal.at_start = extended_digest(journal.at_start, journaled(journal.first, journal.first, start))
  if is_checked and journal.at_start ~= digest_before(journal.at_end, rest) then
    journal.at_start = nil
  end
  keep_journaled(rest)
  journal.first = start
  write_journal(journal)
end
