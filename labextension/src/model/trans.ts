import { STATUS_WORDS, type Status } from './state.js';

/** The used part of JupyterLab's `TranslationBundle`; `english` without JupyterLab. */
export interface ITrans {
  /** Translate `text`; `%1`, `%2`… stand for `args`. */
  __(text: string, ...args: (string | number)[]): string;
  /** Translate the form that fits `n`, which is `%1`. */
  _n(singular: string, plural: string, n: number, ...args: (string | number)[]): string;
}

function filled(text: string, args: readonly (string | number)[]): string {
  return text.replace(/%(\d)/g, (whole, place: string) => String(args[Number(place) - 1] ?? whole));
}

export const english: ITrans = {
  __: (text, ...args) => filled(text, args),
  _n: (singular, plural, n, ...args) => filled(n === 1 ? singular : plural, [n, ...args])
};

/** The word of a status. */
export function statusWord(status: Status, trans: ITrans): string {
  return trans.__(STATUS_WORDS[status]);
}
