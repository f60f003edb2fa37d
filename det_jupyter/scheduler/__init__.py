"""Allocation of slots to gangs, and the reasons why gangs wait. Pure.

model     the values: groups, requests, agents, rules, decisions
snapshot  a pool at one moment: agents, groups, waiting requests in order, running gangs
decide    which requests start and which gangs leave: one function of a snapshot; it uses
          board (slots, and where a gang fits), reservations, preemption
reasons   why a request waits, what would start it, and when that is expected
"""
