-- Marks a session LOST; the record answers until its retention ends.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id ('' in a sweep: the incarnation is gone, whatever runs), retention_ms
-- returns 'lost' | 'gone' (closed, being closed, failed, lost before, or taken over)
--         'alive' in a sweep: its incarnation has joined again; nothing is changed
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'history_length')
if ARGV[2] == '' then
  if record[2] and redis.call('HGET', KEYS[3], 'incarnation') == record[2] then
    return 'alive'
  end
  redis.call('SREM', KEYS[4], ARGV[1])
elseif redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2] then
  return 'gone'
end
if record[1] ~= 'open' and record[1] ~= 'opening' then
  return 'gone'
end
local now = now_ms()
charge_operation(record[3], now)
give_back()
redis.call('HSET', KEYS[1], 'state', 'lost', 'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '')
redis.call('DEL', KEYS[2])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], now + ARGV[3], ARGV[1])
redis.call('ZREM', KEYS[10], ARGV[1])
if redis.call('GET', KEYS[6]) == ARGV[1] then
  redis.call('DEL', KEYS[6])
end
return 'lost'
