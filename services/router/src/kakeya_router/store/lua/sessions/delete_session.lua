-- Removes every trace of a session that begin_close has claimed, and gives its lane back.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then closed and heirs
-- ARGV    session_id, claim, history_length (the final one), how many milliseconds it is remembered for, if it lived for
--         one answer
-- returns 'deleted' | 'gone' (another router claimed it after this one's lease had lapsed)
if redis.call('HGET', KEYS[2], 'claim') ~= ARGV[2] then
  return 'gone'
end
charge_operation(ARGV[3], now_ms())
give_back()
local record = redis.call('HMGET', KEYS[1], 'ephemeral', 'tenant')
if record[1] == '1' then
  redis.call('SET', KEYS[13], ARGV[3] .. ' ' .. (record[2] or ''), 'PX', ARGV[4])
end
disinherit(KEYS[14], '')
redis.call('DEL', KEYS[1], KEYS[2], KEYS[12])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
return 'deleted'
