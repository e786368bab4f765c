-- Takes a waiter out of the line.
-- KEYS    queue, waiters
-- ARGV    waiter_id
-- returns 'left' | 'gone' (not in the line, or not any more)
if not leave_line(KEYS[1], KEYS[2], ARGV[1]) then
  return 'gone'
end
announce_room(KEYS[1])
return 'left'
