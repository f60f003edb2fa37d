import { expect, it } from 'vitest';

import { formatDuration, formatNumber, formatPercent, formatSize } from '../src/model/format.js';
import { quoted } from '../src/charts/saving.js';
import cases from './format-cases.json' with { type: 'json' };

it.each(cases.number as [number | null, string][])('writes the number %s as %s', (value, text) => {
  expect(formatNumber(value)).toBe(text);
});

it.each(cases.duration as [number, string][])('writes %s seconds as %s', (seconds, text) => {
  expect(formatDuration(seconds)).toBe(text);
});

it.each(cases.size as [number, string][])('writes %s bytes as %s', (numBytes, text) => {
  expect(formatSize(numBytes)).toBe(text);
});

it.each(cases.percent as [number, string][])('writes the fraction %s as %s', (fraction, text) => {
  expect(formatPercent(fraction)).toBe(text);
});

it.each(cases.csv as [string, string][])('writes the CSV cell %j as %s', (cell, text) => {
  expect(quoted(cell)).toBe(text);
});
