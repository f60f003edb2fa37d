/** A field of several lines for the settings editor, which has none of its own. */
import type { IFormRenderer } from '@jupyterlab/ui-components';
import { createElement, type ChangeEvent } from 'react';

const ROWS = 12;

export const linesField: IFormRenderer = {
  fieldRenderer: ({ idSchema, schema, formData, onChange, readonly = false }) =>
    createElement(
      'label',
      { className: 'jp-DetLinesField' },
      schema.title,
      createElement('textarea', {
        id: idSchema.$id,
        rows: ROWS,
        spellCheck: false,
        readOnly: readonly,
        value: typeof formData === 'string' ? formData : '',
        onChange: ({ target }: ChangeEvent<HTMLTextAreaElement>) => {
          onChange(target.value);
        }
      })
    )
};
