"""Who gets which slots, and why the others wait. Pure.

model     the values: groups, requests, agents, rules, decisions
pool      the live pool: told of every change, it decides who starts and who makes room
possible  what a pool can never run
estimate  when a running gang ends, by its progress
reasons   why a request waits, and what would start it
"""
