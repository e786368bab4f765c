-- Ends the opening of a session, and charges its prefill: the worker has taken the lane.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then of a fork from lane to lane: session and journal of its source
-- ARGV    session_id, claim, sink and window that the worker chose,
--         history_length, kv_live_bytes and retained of the lane: of a new session's, 0, 0 and '',
--         num_rewinds of its source when its lane was asked for (of a fork from lane to lane),
--         then of a fork at an earlier length: journal_start and the tokens that its journal begins with
-- returns {'open', record}
--         {'gone'} the lease lapsed and was taken over, or the worker was lost meanwhile
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'ttl_ms')
if record[1] ~= 'opening' or redis.call('HGET', KEYS[2], 'claim') ~= ARGV[2]
  or redis.call('HGET', KEYS[3], 'incarnation') ~= record[2] then
  return {'gone'}
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'state', 'open', 'sink', ARGV[3], 'window', ARGV[4], 'idle_since_ms', now,
  'history_length', ARGV[5], 'kv_live_bytes', ARGV[6], 'retained', ARGV[7])
redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', ARGV[6])
if ARGV[9] then
  if ARGV[10] ~= '' then
    redis.call('SET', KEYS[12], ARGV[10])
  end
  redis.call('HSET', KEYS[1], 'journal_start', ARGV[9], 'journal_length', ARGV[5])
elseif KEYS[13] then
  -- The source may have gone on since, been taken back or be closed: then nobody can tell what the fork's history
  -- consists of.
  local source = redis.call('HMGET', KEYS[13], 'journal_start', 'num_rewinds')
  local start = tonumber(source[1] or 0)
  local num_tokens = math.max(0, ARGV[5] - start)
  local tokens = num_tokens > 0 and redis.call('GETRANGE', KEYS[14], 0, 4 * num_tokens - 1) or ''
  if #tokens > 0 and #tokens == 4 * num_tokens and (source[2] or '0') == ARGV[8] then
    redis.call('SET', KEYS[12], tokens)
  else
    start = ARGV[5]
  end
  redis.call('HSET', KEYS[1], 'journal_start', start, 'journal_length', ARGV[5])
end
charge_operation(ARGV[5], now)
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], now + record[3], ARGV[1])
redis.call('ZADD', KEYS[10], now, ARGV[1])
return {'open', redis.call('HGETALL', KEYS[1])}
