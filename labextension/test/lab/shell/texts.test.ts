import { readdirSync, readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { DEFAULTS } from '../../../src/lab/connection/usersettings.js';
import { findStrings } from '../../../strings.mjs';

interface IProperty {
  title: string;
  description: string;
  type: string;
  default: unknown;
  enum?: unknown;
  oneOf?: { const: unknown; title: string }[];
}
interface ISchema {
  title: string;
  description: string;
  properties: Record<string, IProperty>;
  additionalProperties: boolean;
  'jupyter.lab.internationalization': { domain: string };
  'jupyter.lab.setting-icon'?: string;
  'jupyter.lab.shortcuts'?: { selector: string }[];
}
const schemas = Object.fromEntries(
  readdirSync('schema').map(name => [
    name,
    JSON.parse(readFileSync(`schema/${name}`, 'utf8')) as ISchema
  ])
);
const settings = schemas['settings.json'] as ISchema;

test('every text that is translated is literal, so that translators get it', () => {
  expect(findStrings().problems).toEqual([]);
});

test('texts of the core, of plugins and of the settings are found', () => {
  const texts = new Set(findStrings().strings.map(({ context, text }) => `${context}|${text}`));
  expect(texts).toContain('|Run Cell as Experiment');
  expect(texts).toContain('settings|Ask before killing');
  expect(texts).toContain('settings|Newest first');
  expect(texts).toContain('|waiting to be promoted');
});

test('the settings are those that the code knows, with the same defaults', () => {
  const defaults = Object.entries(settings.properties).map(([key, one]) => [key, one.default]);
  expect(Object.fromEntries(defaults)).toEqual(DEFAULTS);
  expect(Object.keys(settings.properties).length).toBeGreaterThanOrEqual(12);
});

test.each(Object.entries(settings.properties))('setting %s says what it is for', (_key, one) => {
  expect(one.title).toMatch(/\S/);
  expect(one.description).toMatch(/\.$/);
  expect(one.enum).toBeUndefined();
  for (const choice of one.oneOf ?? []) {
    expect(choice.title).toMatch(/\S/);
  }
  const choices = one.oneOf?.map(choice => choice.const);
  expect(choices ?? [one.default]).toContain(one.default);
});

test('the settings have an icon of ours', () => {
  const icon = readFileSync('src/lab/sidebar/icon.ts', 'utf8');
  expect(icon).toContain(`'${settings['jupyter.lab.setting-icon'] ?? ''}'`);
});

test.each(Object.entries(schemas))('%s is translated, and takes no other keys', (_name, schema) => {
  expect(schema['jupyter.lab.internationalization'].domain).toBe('det_jupyter');
  expect(schema.additionalProperties).toBe(false);
});

test('shortcuts are few, and only where they are meant', () => {
  const shortcuts = Object.values(schemas).flatMap(one => one['jupyter.lab.shortcuts'] ?? []);
  expect(shortcuts.length).toBeLessThanOrEqual(4);
  shortcuts.forEach(({ selector }) => expect(selector).not.toBe('body'));
});

test('every setting has an effect', () => {
  const names = readdirSync('src/lab', { recursive: true, encoding: 'utf8' });
  const code = names
    .filter(name => name.endsWith('.ts'))
    .map(name => readFileSync(`src/lab/${name}`, 'utf8'))
    .join('\n');
  const isRead = (key: string): boolean => new RegExp(`\\.get\\(\\s*'${key}'`).test(code);
  expect(Object.keys(settings.properties).filter(key => !isRead(key))).toEqual([]);
});
