-- Takes a session off a lane that is gone: it is PARKED where it can be had again, else LOST, and its record answers
-- until its retention ends.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim ('' in a sweep: the incarnation is gone), lost_ms and parked_ms (how long it is kept then),
--         start and tokens: what was generated and is not journaled yet, as extend_journal.lua takes it,
--         incarnation that is gone (in a sweep), for_good (1: it is known that it cannot be had again)
-- returns 'lost' | 'parked' | 'gone' (closed, being closed, failed, lost or parked before, or taken over)
--         'busy'  in a sweep: an operation runs, and sees to it itself
--         'alive' in a sweep: its incarnation has joined again; nothing is changed
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation')
local now = now_ms()
if ARGV[2] == '' then
  if record[2] ~= ARGV[7] then
    redis.call('SREM', KEYS[4], ARGV[1])
    return 'gone'  -- it has another lane by now
  end
  if redis.call('HGET', KEYS[3], 'incarnation') == record[2] then
    return 'alive'
  end
  redis.call('SREM', KEYS[4], ARGV[1])
  local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
  if record[1] == 'open' and lease_until and tonumber(lease_until) > now then
    return 'busy'
  end
elseif not holds(ARGV[2]) then
  return 'gone'
end
if record[1] ~= 'open' and record[1] ~= 'opening' and (record[1] ~= 'parked' or ARGV[2] == '') then
  return 'gone'
end
if ARGV[6] ~= '' then
  extend_journal(tonumber(ARGV[5]), ARGV[6])
end
charge_operation(redis.call('HGET', KEYS[1], 'journal_length') or 0, now)
redis.call('DEL', KEYS[2])
if record[1] ~= 'opening' and ARGV[8] ~= '1' and is_recoverable() then
  park()
  redis.call('HSET', KEYS[1], 'idle_since_ms', now)
  local ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'ttl_ms'))
  redis.call('ZADD', KEYS[5], now + math.max(ARGV[4], ttl_ms), ARGV[1])
  return 'parked'
end
give_back()
redis.call('HSET', KEYS[1], 'state', 'lost', 'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '')
redis.call('DEL', KEYS[12])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], now + ARGV[3], ARGV[1])
redis.call('ZREM', KEYS[10], ARGV[1])
if redis.call('GET', KEYS[6]) == ARGV[1] then
  redis.call('DEL', KEYS[6])
end
return 'lost'
